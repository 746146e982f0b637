//! Requests as a service records them, and every class of answer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response, header};
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use serde_json::{Value, json};
use tower::{Layer as _, service_fn};

use super::retry_after::RetryAfterLayer;
use super::{Fence, KubeIo, Limiter};
use crate::messages::{Kind, KubeAnswer, KubeError, KubeErrorKind, KubeRequest, Object, ObjectRef};
use crate::metrics::Metrics;

/// What was asked.
#[derive(Debug, PartialEq)]
struct Recorded {
    line: String,
    content_type: String,
    body: Value,
}

type Answer = (u16, &'static [(&'static str, &'static str)], String);

/// Runs a request against a service that records it and answers so.
async fn run(request: KubeRequest, answer: Answer) -> (Result<KubeAnswer, KubeError>, Recorded) {
    let seen = Arc::new(Mutex::new(None));
    let there = seen.clone();
    let service = service_fn(move |request: Request<Body>| {
        let (seen, answer) = (there.clone(), answer.clone());
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let content_type = parts.headers.get(header::CONTENT_TYPE);
            let content_type = content_type.map_or("", |value| value.to_str().unwrap());
            *seen.lock().unwrap() = Some(Recorded {
                line: format!("{} {}", parts.method, parts.uri),
                content_type: content_type.to_owned(),
                body: serde_json::from_slice(&body).unwrap_or_default(),
            });
            let (code, headers, text) = answer;
            let mut response = Response::builder().status(code);
            for (name, value) in headers {
                response = response.header(*name, *value);
            }
            let body = Body::from(text.into_bytes());
            Ok::<_, tower::BoxError>(response.body(body).unwrap())
        }
    });
    let client = kube::Client::new(RetryAfterLayer.layer(service), "default");
    let metrics = Arc::new(Metrics::new().unwrap());
    let kube = KubeIo::new(client, Limiter::unlimited(), metrics).behind(Fence::open());
    let result = kube.run(request).await;
    let recorded = seen.lock().unwrap().take();
    (result, recorded.expect("a request"))
}

fn runner() -> ObjectRef {
    ObjectRef::new(Kind::EphemeralRunner, "ci", "r")
}

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
           "metadata": {"name": "r", "namespace": "ci", "resourceVersion": "7"}})
}

fn ok(body: &Value) -> Answer {
    (200, &[], body.to_string())
}

const RUNNER: &str = "/apis/actions.github.com/v1alpha1/namespaces/ci/ephemeralrunners/r";
const MERGE: &str = "application/merge-patch+json";

#[tokio::test]
async fn each_request_has_its_method_path_and_body() {
    let body = json!({"status": {"ready": true}});
    let patch = |status, lock: Option<&str>| KubeRequest::Patch {
        target: runner(),
        body: body.clone(),
        status,
        lock: lock.map(str::to_owned),
    };
    let delete = |uid: Option<&str>, lock: Option<&str>, grace| KubeRequest::Delete {
        target: runner(),
        uid: uid.map(str::to_owned),
        lock: lock.map(str::to_owned),
        grace,
    };
    let locked = json!({"status": {"ready": true}, "metadata": {"resourceVersion": "7"}});
    let status = format!("PATCH {RUNNER}/status?&fieldManager=impresario");
    let patched = format!("PATCH {RUNNER}?&fieldManager=impresario");
    let deleted = format!("DELETE {RUNNER}?");
    let table = [
        (
            KubeRequest::Get(runner()),
            format!("GET {RUNNER}"),
            "",
            Value::Null,
        ),
        (
            KubeRequest::List {
                kind: Kind::Secret,
                namespace: "ci".into(),
                selector: "a=b".into(),
            },
            "GET /api/v1/namespaces/ci/secrets?&labelSelector=a%3Db".into(),
            "",
            Value::Null,
        ),
        (patch(true, None), status.clone(), MERGE, body.clone()),
        (patch(false, None), patched.clone(), MERGE, body.clone()),
        (patch(true, Some("7")), status, MERGE, locked.clone()),
        (patch(false, Some("7")), patched, MERGE, locked),
        (
            delete(None, None, None),
            deleted.clone(),
            "application/json",
            json!({"preconditions": {}, "propagationPolicy": "Background"}),
        ),
        (
            delete(Some("u"), Some("7"), Some(0)),
            deleted,
            "application/json",
            json!({"preconditions": {"uid": "u", "resourceVersion": "7"},
                   "propagationPolicy": "Background", "gracePeriodSeconds": 0}),
        ),
        (
            KubeRequest::Patch {
                target: ObjectRef::new(Kind::Pod, "ci", "r"),
                body: json!({"metadata": {"labels": {"a": "b"}}}),
                status: false,
                lock: Some("7".to_owned()),
            },
            "PATCH /api/v1/namespaces/ci/pods/r?&fieldManager=impresario".into(),
            MERGE,
            json!({"metadata": {"labels": {"a": "b"}, "resourceVersion": "7"}}),
        ),
        (
            KubeRequest::Create(Object::from(serde_json::from_value::<Pod>(pod()).unwrap())),
            "POST /api/v1/namespaces/ci/pods?&fieldManager=impresario".into(),
            "application/json",
            pod(),
        ),
    ];
    for (request, line, content_type, body) in table {
        // what was written comes back, or it would be written elsewhere
        let (_, recorded) = run(request.clone(), ok(&body)).await;
        let content_type = content_type.to_owned();
        let expected = Recorded {
            line,
            content_type,
            body,
        };
        assert_eq!(recorded, expected, "{request:?}");
    }
}

#[tokio::test]
async fn a_delete_of_an_object_names_its_uid() {
    let mut object = serde_json::from_value::<Pod>(pod()).unwrap();
    object.metadata.uid = Some("u".into());
    let (_, recorded) = run(KubeRequest::delete(&Object::from(object)), ok(&json!({}))).await;
    assert_eq!(recorded.body["preconditions"], json!({"uid": "u"}));
}

#[tokio::test]
async fn every_kind_has_its_path() {
    for kind in Kind::ALL {
        let get = KubeRequest::Get(ObjectRef::new(*kind, "ns", "n"));
        let (_, recorded) = run(get, ok(&json!({}))).await;
        let group = kind.api_version();
        let root = if group == "v1" { "api" } else { "apis" };
        let plural = kind.plural();
        let line = format!("GET /{root}/{group}/namespaces/ns/{plural}/n");
        assert_eq!(recorded.line, line);
    }
}

#[tokio::test]
async fn answers_that_accept_are_the_objects() {
    let get = KubeRequest::Get(ObjectRef::new(Kind::Pod, "ci", "r"));
    let (answer, _) = run(get, ok(&pod())).await;
    let answer = answer.unwrap();
    assert_eq!(format!("{answer:?}"), "Object(Pod ci/r@7)");
    let list = KubeRequest::List {
        kind: Kind::Pod,
        namespace: "ci".into(),
        selector: String::new(),
    };
    let listed = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [pod()]});
    let (answer, _) = run(list, ok(&listed)).await;
    assert_eq!(format!("{:?}", answer.unwrap()), "Objects([Pod ci/r@7])");
}

#[tokio::test]
async fn a_deleted_object_is_gone_unless_something_holds_it() {
    let delete = || KubeRequest::Delete {
        target: ObjectRef::new(Kind::Pod, "ci", "r"),
        uid: None,
        lock: None,
        grace: None,
    };
    let with = |more: Value| {
        let mut pod = pod();
        json_patch::merge(&mut pod, &json!({ "metadata": more }));
        pod
    };
    let time = "2026-01-01T00:00:00Z";
    for (body, lingers) in [
        (json!({"kind": "Status", "status": "Success"}), false),
        (
            with(json!({"deletionTimestamp": time, "deletionGracePeriodSeconds": 0})),
            false,
        ),
        (
            with(json!({"deletionTimestamp": time, "deletionGracePeriodSeconds": 30})),
            true,
        ),
        (
            with(json!({"deletionTimestamp": time, "finalizers": ["a/b"]})),
            true,
        ),
        (with(json!({"finalizers": ["a/b"]})), false),
    ] {
        let (answer, _) = run(delete(), ok(&body)).await;
        assert_eq!(answer.unwrap().object().is_some(), lingers, "{body}");
    }
}

fn status(code: u16, reason: &str, message: &str, details: Value) -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                        "code": code, "reason": reason, "message": message, "details": details});
    (code, &[], status.to_string())
}

#[tokio::test]
async fn refusals_are_classed_by_what_they_mean_for_who_asked() {
    use KubeErrorKind::{
        AlreadyExists, Conflict, Forbidden, Invalid, NamespaceTerminating, NotFound, Other,
        QuotaExceeded, Unanswered, Unavailable,
    };
    let terminating = json!({"causes": [{"reason": "NamespaceTerminating"}]});
    let plain = |code| status(code, "", "no", json!({}));
    // answer, then what it means for a read, a create and a patch
    let table = [
        (plain(400), [Invalid, Invalid, Invalid]),
        (plain(401), [Forbidden, Forbidden, Forbidden]),
        (plain(403), [Forbidden, Forbidden, Forbidden]),
        (
            status(403, "Forbidden", "exceeded quota: pods", json!({})),
            [QuotaExceeded, QuotaExceeded, QuotaExceeded],
        ),
        (
            status(403, "Forbidden", "no", terminating),
            [
                NamespaceTerminating,
                NamespaceTerminating,
                NamespaceTerminating,
            ],
        ),
        (plain(404), [NotFound, NotFound, NotFound]),
        (plain(405), [Other, Other, Other]),
        (plain(409), [Conflict, AlreadyExists, Conflict]),
        (
            status(409, "AlreadyExists", "no", json!({})),
            [AlreadyExists, AlreadyExists, AlreadyExists],
        ),
        (
            status(409, "Conflict", "no", json!({})),
            [Conflict, Conflict, Conflict],
        ),
        (plain(410), [Other, Other, Other]),
        (plain(422), [Invalid, Invalid, Invalid]),
        // refused before it was begun
        (plain(429), [Unavailable, Unavailable, Unavailable]),
        (plain(500), [Unavailable, Unavailable, Unavailable]),
        (plain(503), [Unavailable, Unavailable, Unavailable]),
        // it may have been done
        (plain(504), [Unavailable, Unanswered, Unanswered]),
        (plain(502), [Unavailable, Unanswered, Unanswered]),
        (
            status(
                500,
                "InternalError",
                "etcdserver: request timed out",
                json!({}),
            ),
            [Unavailable, Unanswered, Unanswered],
        ),
        (
            (504, &[], "<html>Gateway Timeout</html>".into()),
            [Unavailable, Unanswered, Unanswered],
        ),
    ];
    for (answer, expected) in table {
        let requests = [
            KubeRequest::Get(runner()),
            KubeRequest::Create(Object::from(serde_json::from_value::<Pod>(pod()).unwrap())),
            KubeRequest::patch(runner(), json!({})),
        ];
        for (request, expected) in requests.into_iter().zip(expected) {
            let verb = request.verb();
            let (result, _) = run(request, answer.clone()).await;
            let error = result.unwrap_err();
            assert_eq!(error.kind, expected, "{verb}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn how_long_to_wait_is_read_from_header_and_body() {
    let seconds = |seconds: u32| json!({ "retryAfterSeconds": seconds });
    for (headers, details, expected) in [
        (&[][..], json!({}), None),
        (&[], seconds(7), Some(7)),
        (&[("retry-after", "9")], json!({}), Some(9)),
        (&[("retry-after", "9")], seconds(7), Some(9)),
        (&[("retry-after", "3")], seconds(7), Some(7)),
        (&[("retry-after", "soon")], json!({}), None),
    ] {
        for code in [429, 503] {
            let (_, _, text) = status(code, "", "busy", details.clone());
            let (result, _) = run(KubeRequest::Get(runner()), (code, headers, text)).await;
            let wait = result.unwrap_err().retry_after;
            assert_eq!(wait.map(|wait| wait.as_secs()), expected, "{headers:?}");
        }
    }
    let text = (
        503,
        &[("retry-after", "4")][..],
        "upstream is down".to_owned(),
    );
    let (result, _) = run(KubeRequest::Get(runner()), text).await;
    assert_eq!(
        result.unwrap_err().retry_after,
        Some(Duration::from_secs(4))
    );
}

/// Answers GETs so, and lists so; and says what was asked.
async fn read(target: ObjectRef, get: Answer, list: Answer) -> (Reads, Vec<String>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let there = seen.clone();
    let service = service_fn(move |request: Request<Body>| {
        let is_list = request.uri().query().is_some_and(|query| !query.is_empty());
        let answer = if is_list { list.clone() } else { get.clone() };
        there.lock().unwrap().push(request.uri().to_string());
        async move {
            let (code, _, text) = answer;
            let response = Response::builder().status(code);
            Ok::<_, tower::BoxError>(response.body(Body::from(text.into_bytes())).unwrap())
        }
    });
    let client = kube::Client::new(service, "default");
    let metrics = Arc::new(Metrics::new().unwrap());
    let kube = KubeIo::new(client, Limiter::unlimited(), metrics);
    let result = kube.run(KubeRequest::Get(target)).await;
    let found = result.map(|answer| answer.object().is_some());
    let asked = seen.lock().unwrap().clone();
    (found.map_err(|error| error.kind), asked)
}

type Reads = Result<bool, KubeErrorKind>;

/// The right to list is there where that to get is not: in a namespace whose RoleBinding is gone.
#[tokio::test]
async fn what_may_not_be_read_is_looked_for_in_its_list() {
    let object = ok(&pod());
    let no = |code| status(code, "", "no", json!({}));
    let list = |items: &[Value]| {
        ok(&json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items}))
    };
    let of = |kind| ObjectRef::new(kind, "ci", "r");
    for (kind, get, list, expected, requests) in [
        (Kind::Pod, object.clone(), no(500), Ok(true), 1),
        (Kind::Pod, no(403), list(&[pod()]), Ok(true), 2),
        (
            Kind::Pod,
            no(403),
            list(&[]),
            Err(KubeErrorKind::NotFound),
            2,
        ),
        (
            Kind::Pod,
            no(403),
            no(403),
            Err(KubeErrorKind::Forbidden),
            2,
        ),
        (
            Kind::Pod,
            no(403),
            no(503),
            Err(KubeErrorKind::Unavailable),
            2,
        ),
        (
            Kind::Pod,
            no(404),
            list(&[pod()]),
            Err(KubeErrorKind::NotFound),
            1,
        ),
        (
            Kind::Pod,
            no(500),
            list(&[pod()]),
            Err(KubeErrorKind::Unavailable),
            1,
        ),
        // there is no right to list those
        (
            Kind::Secret,
            no(403),
            list(&[pod()]),
            Err(KubeErrorKind::Forbidden),
            1,
        ),
        (
            Kind::ConfigMap,
            no(403),
            list(&[pod()]),
            Err(KubeErrorKind::Forbidden),
            1,
        ),
    ] {
        let what = format!("{kind} {get:?} {list:?}");
        let (found, asked) = read(of(kind), get, list).await;
        assert_eq!(
            (found, asked.len()),
            (expected, requests),
            "{what}: {asked:?}"
        );
        if let Some(list) = asked.get(1) {
            assert!(list.contains("fieldSelector=metadata.name%3Dr"), "{list}");
        }
    }
}

/// An answer that came and is not what it should be is no silence: nothing is to be found out.
#[tokio::test]
async fn an_answer_that_cannot_be_read_is_an_answer() {
    for request in [
        KubeRequest::Get(ObjectRef::new(Kind::Pod, "ci", "r")),
        KubeRequest::patch(runner(), json!({})),
    ] {
        let (result, _) = run(request, (200, &[], "{\"kind\": 7".to_owned())).await;
        assert_eq!(result.unwrap_err().kind, KubeErrorKind::Other);
    }
}

/// Which requests may have taken effect when no answer comes.
#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_ends_at_its_deadline() {
    let mute = service_fn(|_: Request<Body>| {
        std::future::pending::<Result<Response<Body>, tower::BoxError>>()
    });
    let metrics = Arc::new(Metrics::new().unwrap());
    let kube = KubeIo::new(
        kube::Client::new(mute, "default"),
        Limiter::unlimited(),
        metrics,
    );
    let start = tokio::time::Instant::now();
    let read = kube.run(KubeRequest::Get(runner())).await.unwrap_err();
    assert_eq!(read.kind, KubeErrorKind::Unavailable);
    assert_eq!(start.elapsed().as_secs(), 60);
    let write = KubeRequest::patch(runner(), json!({}));
    let write = kube.run(write).await.unwrap_err();
    assert_eq!(write.kind, KubeErrorKind::Unanswered);
}

#[tokio::test(start_paused = true)]
async fn reads_are_bounded_and_writes_wait_for_the_fence() {
    let under_way = Arc::new(Mutex::new((0_usize, 0_usize, 0_usize)));
    let there = under_way.clone();
    let slow = service_fn(move |_: Request<Body>| {
        let under_way = there.clone();
        async move {
            {
                let mut now = under_way.lock().unwrap();
                now.0 += 1;
                now.1 = now.1.max(now.0);
                now.2 += 1;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            under_way.lock().unwrap().0 -= 1;
            Ok::<_, tower::BoxError>(Response::new(Body::from(pod().to_string().into_bytes())))
        }
    });
    let fence = Fence::open();
    let metrics = Arc::new(Metrics::new().unwrap());
    let client = kube::Client::new(slow, "default");
    let kube = KubeIo::new(client, Limiter::unlimited(), metrics).behind(fence.clone());
    let get = || KubeRequest::Get(ObjectRef::new(Kind::Pod, "ci", "r"));
    let reads = (0..100).map(|_| kube.run(get()));
    futures::future::join_all(reads).await;
    assert_eq!(under_way.lock().unwrap().1, 16, "of 100 at once");

    fence.close();
    let write = KubeRequest::patch(runner(), json!({}));
    let held = tokio::time::timeout(Duration::from_secs(600), kube.run(write));
    assert!(held.await.is_err(), "it was sent, or answered");
    assert!(kube.run(get()).await.is_ok(), "reads go on");
    assert_eq!(under_way.lock().unwrap().2, 101, "the reads alone");
}
