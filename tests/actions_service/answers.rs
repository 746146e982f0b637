//! What every answer looks like to a client that is strict: status, headers, and the type of each
//! field, as the real service and RFC 7519 have them.

use impresario::simulation::transports;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use embedded_actions::{JobSpec, NamedFault};
use impresario::actions::{Transport, TransportOptions};
use serde_json::{Value, json};

use crate::world::{TOKEN, URL, World};

/// A client that knows no more of the protocol than a curl does.
struct Curl(Arc<dyn Transport>);

struct Answer {
    status: u16,
    content_type: String,
    packing: String,
    ids: bool,
    body: Bytes,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {:?}", self.body))
    }
}

impl Curl {
    fn of(world: &World) -> Self {
        let transports = transports(&world.service);
        Self(transports.transport(&TransportOptions::default()).unwrap())
    }

    async fn ask(&self, method: &str, url: &str, authorization: &str, body: &Value) -> Answer {
        let request = http::Request::builder()
            .method(method)
            .uri(url)
            .header("authorization", authorization)
            .body(Bytes::from(body.to_string()))
            .unwrap();
        let answer = self.0.send(request).await.unwrap();
        let header = |name: &str| {
            let value = answer.headers().get(name);
            value.map(|value| value.to_str().unwrap().to_owned())
        };
        Answer {
            status: answer.status().as_u16(),
            content_type: header("content-type").unwrap_or_default(),
            packing: header("content-encoding").unwrap_or_default(),
            ids: header("activityid").is_some() && header("x-github-request-id").is_some(),
            body: answer.body().clone(),
        }
    }

    /// Signs in as far as a tenant: its URL and the header that opens it.
    async fn sign_in(&self) -> (String, String) {
        let api = "https://api.github.com";
        let url = format!("{api}/repos/acme/widgets/actions/runners/registration-token");
        let bearer = format!("Bearer {TOKEN}");
        let token = self.ask("POST", &url, &bearer, &json!({})).await.json();
        let remote = format!("RemoteAuth {}", token["token"].as_str().unwrap());
        let url = format!("{api}/actions/runner-registration");
        let body = json!({"url": URL, "runner_event": "register"});
        let answer = self.ask("POST", &url, &remote, &body).await.json();
        let bearer = format!("Bearer {}", answer["token"].as_str().unwrap());
        (answer["url"].as_str().unwrap().to_owned(), bearer)
    }
}

/// The claims of a token, each of the type that RFC 7519 gives it.
fn claims(token: &str) -> Value {
    let parts: Vec<&str> = token.split('.').collect();
    assert_eq!(parts.len(), 3, "{token}");
    let read = |part: &str| -> Value {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
    };
    assert!(read(parts[0])["alg"].is_string());
    let claims = read(parts[1]);
    for (name, value) in claims.as_object().unwrap() {
        let right = match name.as_str() {
            "exp" | "nbf" | "iat" => value.is_i64(),
            "jti" | "iss" | "sub" | "aud" => value.is_string(),
            _ => true,
        };
        assert!(right, "{name} is {value}");
    }
    for name in ["jti", "exp"] {
        assert!(!claims[name].is_null(), "there is no {name}");
    }
    claims
}

/// Whether a value is of the shape of another: a number for a number, text for text, a time for a
/// time, and each element of a list as its first.
fn assert_shape(path: &str, value: &Value, shape: &Value) {
    match shape {
        Value::Object(fields) => {
            for (name, shape) in fields {
                assert_shape(&format!("{path}.{name}"), &value[name], shape);
            }
        }
        Value::Array(items) => {
            let list = value
                .as_array()
                .unwrap_or_else(|| panic!("{path} is {value}"));
            for item in list {
                assert_shape(&format!("{path}[]"), item, &items[0]);
            }
        }
        Value::String(kind) if kind == "time" => {
            let text = value
                .as_str()
                .unwrap_or_else(|| panic!("{path} is {value}"));
            let time = text.parse::<k8s_openapi::jiff::Timestamp>();
            assert!(time.is_ok(), "{path} is {text}");
        }
        Value::String(kind) if kind == "uuid" => {
            let text = value
                .as_str()
                .unwrap_or_else(|| panic!("{path} is {value}"));
            let lengths: Vec<usize> = text.split('-').map(str::len).collect();
            assert_eq!(lengths, [8, 4, 4, 4, 12], "{path} is {text}");
        }
        Value::String(_) => assert!(value.is_string(), "{path} is {value}"),
        Value::Number(_) => assert!(value.is_i64(), "{path} is {value}"),
        Value::Bool(_) => assert!(value.is_boolean(), "{path} is {value}"),
        Value::Null => {}
    }
}

fn statistics() -> Value {
    json!({"totalAvailableJobs": 0, "totalAcquiredJobs": 0, "totalAssignedJobs": 0,
        "totalRunningJobs": 0, "totalRegisteredRunners": 0, "totalBusyRunners": 0,
        "totalIdleRunners": 0})
}

fn scale_set() -> Value {
    json!({"id": 0, "name": "", "runnerGroupId": 0, "runnerGroupName": "",
        "labels": [{"type": "", "name": ""}], "RunnerSetting": {"disableUpdate": true},
        "createdOn": "time", "runnerJitConfigUrl": "", "statistics": statistics()})
}

fn session() -> Value {
    json!({"sessionId": "uuid", "ownerName": "", "runnerScaleSet": scale_set(),
        "messageQueueUrl": "", "messageQueueAccessToken": "", "statistics": statistics()})
}

fn runner() -> Value {
    json!({"id": 0, "name": "", "runnerScaleSetId": 0})
}

fn list(of: Value) -> Value {
    json!({"count": 0, "value": [of]})
}

#[tokio::test(start_paused = true)]
async fn every_answer_has_its_status_its_headers_and_its_types() {
    let world = World::new();
    let curl = Curl::of(&world);
    let nothing = json!({});
    let (tenant, bearer) = curl.sign_in().await;
    claims(bearer.strip_prefix("Bearer ").unwrap());
    let sets = format!("{tenant}_apis/runtime/runnerscalesets");
    let agents = format!("{tenant}_apis/distributedtask/pools/0/agents");
    let groups = format!("{tenant}_apis/runtime/runnergroups/?groupName=default");
    let wanted = json!({"name": "ci", "runnerGroupId": 1, "labels": [{"type": "System", "name": "ci"}],
        "RunnerSetting": {"disableUpdate": true}});
    let jit = json!({"runner": runner(), "encodedJITConfig": ""});
    let group = json!({"id": 0, "name": "", "isDefaultGroup": true});
    for (method, url, body, status, shape) in [
        ("GET", groups, &nothing, 200, Some(list(group))),
        ("POST", sets.clone(), &wanted, 200, Some(scale_set())),
        (
            "GET",
            format!("{sets}?runnerGroupId=1&name=ci"),
            &nothing,
            200,
            Some(list(scale_set())),
        ),
        (
            "GET",
            format!("{sets}?runnerGroupId=1&name=none"),
            &nothing,
            200,
            Some(list(scale_set())),
        ),
        ("GET", format!("{sets}/1"), &nothing, 200, Some(scale_set())),
        (
            "PATCH",
            format!("{sets}/1"),
            &wanted,
            200,
            Some(scale_set()),
        ),
        (
            "POST",
            format!("{sets}/1/generatejitconfig"),
            &json!({"name": "r-1"}),
            200,
            Some(jit),
        ),
        (
            "GET",
            format!("{agents}?agentName=r-1"),
            &nothing,
            200,
            Some(list(runner())),
        ),
        (
            "GET",
            format!("{agents}/1001"),
            &nothing,
            200,
            Some(runner()),
        ),
        (
            "POST",
            format!("{sets}/1/sessions"),
            &json!({"ownerName": "o"}),
            200,
            Some(session()),
        ),
        ("DELETE", format!("{agents}/1001"), &nothing, 204, None),
        // gone, and gone from the beginning: the peer takes nothing but 204 for done
        ("DELETE", format!("{agents}/1001"), &nothing, 204, None),
        ("DELETE", format!("{agents}/987654"), &nothing, 204, None),
    ] {
        let answer = curl.ask(method, &url, &bearer, body).await;
        assert_eq!(answer.status, status, "{method} {url}");
        assert!(answer.ids, "{method} {url}");
        match shape {
            Some(shape) => {
                assert_eq!(answer.content_type, "application/json; charset=utf-8");
                assert_shape(&url, &answer.json(), &shape);
            }
            None => assert!(answer.body.is_empty() && answer.content_type.is_empty()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_and_its_messages_have_their_types() {
    let world = World::new();
    let curl = Curl::of(&world);
    let (tenant, bearer) = curl.sign_in().await;
    let set = world.scale_set("ci").await;
    let sets = format!("{tenant}_apis/runtime/runnerscalesets/{set}");
    let opened = curl
        .ask(
            "POST",
            &format!("{sets}/sessions"),
            &bearer,
            &json!({"ownerName": "o"}),
        )
        .await
        .json();
    let id = opened["sessionId"].as_str().unwrap();
    let refreshed = curl
        .ask(
            "PATCH",
            &format!("{sets}/sessions/{id}"),
            &bearer,
            &json!({}),
        )
        .await
        .json();
    assert_shape("refreshed", &refreshed, &session());
    let token = refreshed["messageQueueAccessToken"].as_str().unwrap();
    claims(token);
    let queue = refreshed["messageQueueUrl"].as_str().unwrap().to_owned();
    let queue_token = format!("Bearer {token}");
    let empty = curl.ask("GET", &queue, &queue_token, &json!({})).await;
    assert_eq!((empty.status, empty.body.len()), (202, 0));
    let job = world.service.queue_job(JobSpec::on("ci"));
    let mut last = 0;
    let mut kinds = Vec::new();
    while kinds.last().is_none_or(|kind| kind != "JobCompleted") {
        let url = format!("{queue}?lastMessageId={last}");
        let polled = curl.ask("GET", &url, &queue_token, &json!({})).await;
        if polled.status == 202 {
            continue;
        }
        let polled = polled.json();
        let shape =
            json!({"messageId": 0, "messageType": "", "body": "", "statistics": statistics()});
        assert_shape("message", &polled, &shape);
        last = polled["messageId"].as_i64().unwrap();
        let told: Value = serde_json::from_str(polled["body"].as_str().unwrap()).unwrap();
        for part in told.as_array().unwrap() {
            let kind = part["messageType"].as_str().unwrap().to_owned();
            let mut shape = json!({"runnerRequestId": 0, "repositoryName": "", "ownerName": "",
                "jobId": "uuid", "jobWorkflowRef": "", "jobDisplayName": "", "workflowRunId": 0,
                "eventName": "", "requestLabels": [""], "queueTime": "time",
                "scaleSetAssignTime": "time", "runnerAssignTime": "time", "finishTime": "time"});
            if kind == "JobStarted" || kind == "JobCompleted" {
                shape["runnerId"] = json!(0);
                shape["runnerName"] = json!("");
            }
            if kind == "JobCompleted" {
                shape["result"] = json!("");
            }
            assert_shape(&kind, part, &shape);
            kinds.push(kind);
        }
        let message = format!("{queue}/{last}");
        let answer = curl.ask("DELETE", &message, &queue_token, &json!({})).await;
        assert_eq!((answer.status, answer.body.len()), (204, 0));
        match kinds.last().map(String::as_str) {
            Some("JobAvailable") => {
                let url = format!("{sets}/acquirejobs");
                let acquired = curl.ask("POST", &url, &queue_token, &json!([job])).await;
                assert_eq!(acquired.json(), json!({"count": 1, "value": [job]}));
            }
            Some("JobAssigned") => {
                let (runner, _) = world.runner(set, "r-1").await;
                tokio::spawn(world.service.start_runner(runner).unwrap().work());
            }
            _ => {}
        }
    }
    assert_eq!(
        kinds,
        ["JobAvailable", "JobAssigned", "JobStarted", "JobCompleted"]
    );
    let closed = curl
        .ask(
            "DELETE",
            &format!("{sets}/sessions/{id}"),
            &bearer,
            &json!({}),
        )
        .await;
    assert_eq!((closed.status, closed.body.len()), (204, 0));
}

#[tokio::test(start_paused = true)]
async fn every_refusal_says_what_its_body_is() {
    let world = World::new();
    world.service.accept_only([TOKEN]);
    let curl = Curl::of(&world);
    let (tenant, bearer) = curl.sign_in().await;
    let set = world.scale_set("ci").await;
    world.session(set).await;
    let api = "https://api.github.com";
    let sets = format!("{tenant}_apis/runtime/runnerscalesets");
    let token = format!("{api}/orgs/acme/actions/runners/registration-token");
    let register = format!("{api}/actions/runner-registration");
    let group = json!({"name": "x", "runnerGroupId": 99});
    for (method, url, authorization, body, status, json) in [
        ("POST", token.clone(), "Bearer wrong", json!({}), 401, true),
        (
            "POST",
            register,
            "RemoteAuth wrong",
            json!({"url": URL}),
            401,
            true,
        ),
        ("GET", sets.clone(), "Bearer wrong", json!({}), 401, false),
        ("GET", format!("{sets}/99"), &bearer, json!({}), 404, true),
        ("POST", sets.clone(), &bearer, group, 404, true),
        (
            "POST",
            format!("{sets}/{set}/sessions"),
            &bearer,
            json!({}),
            409,
            true,
        ),
        (
            "GET",
            format!("{tenant}queue/none"),
            &bearer,
            json!({}),
            401,
            false,
        ),
        (
            "GET",
            format!("{api}/nothing"),
            &bearer,
            json!({}),
            404,
            false,
        ),
    ] {
        let answer = curl.ask(method, &url, authorization, &body).await;
        assert_eq!(answer.status, status, "{method} {url}");
        assert!(answer.ids, "{method} {url}");
        if json {
            assert_eq!(
                answer.content_type, "application/json; charset=utf-8",
                "{url}"
            );
            let body = answer.json();
            assert!(body["message"].is_string(), "{body}");
        } else {
            assert_eq!(answer.content_type, "text/plain; charset=utf-8", "{url}");
            assert!(!answer.body.is_empty());
        }
    }
    for (fault, content_type) in [
        ("bad-gateway", "text/html; charset=utf-8"),
        ("unavailable", "text/plain; charset=utf-8"),
        ("session-gone", "application/json; charset=utf-8"),
    ] {
        world.ask_once("get_scale_set", json!({"fault": fault}));
        let answer = curl
            .ask("GET", &format!("{sets}/{set}"), &bearer, &json!({}))
            .await;
        assert_eq!(answer.content_type, content_type, "{fault}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_strict_client_refuses_can_be_asked_for() {
    let world = World::new();
    let curl = Curl::of(&world);
    world.ask_once("register", json!({"fault": "number-token"}));
    let (tenant, bearer) = curl.sign_in().await;
    let token = bearer.strip_prefix("Bearer ").unwrap();
    let part = token.split('.').nth(1).unwrap();
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
    assert!(claims["jti"].is_i64(), "{claims}");
    let sets = format!("{tenant}_apis/runtime/runnerscalesets");
    // it is valid all the same
    let found = format!("{sets}?runnerGroupId=1&name=none");
    assert_eq!(
        curl.ask("GET", &found, &bearer, &json!({})).await.status,
        200
    );

    let none = format!("{sets}/99");
    world.ask_once("get_scale_set", json!({"fault": "no-content-type"}));
    let answer = curl.ask("GET", &none, &bearer, &json!({})).await;
    assert_eq!((answer.status, answer.content_type.as_str()), (404, ""));

    let agent = format!("{tenant}_apis/distributedtask/pools/0/agents/987654");
    world.ask_once("remove_runner", json!({"fault": "runner-not-found"}));
    assert_eq!(
        curl.ask("DELETE", &agent, &bearer, &json!({})).await.status,
        404
    );

    world.ask_once(
        "find_scale_set",
        json!({"fault": "long-body", "mebibytes": 3}),
    );
    let long = curl.ask("GET", &found, &bearer, &json!({})).await;
    assert_eq!(long.body.len(), 3 << 20);
    assert_eq!(long.json()["count"], 0);
    world.ask_once("find_scale_set", json!({"fault": "packed-body"}));
    let packed = curl.ask("GET", &found, &bearer, &json!({})).await;
    assert_eq!(packed.packing, "gzip");
    let many: NamedFault = serde_json::from_value(json!({"fault": "long-body"})).unwrap();
    assert_eq!(many, NamedFault::LongBody { mebibytes: 100 });
}
