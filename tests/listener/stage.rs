//! A stage for the listener program: the embedded API server and Actions service with one
//! scale set and its runner set, under virtual time.

use impresario::simulation::transports;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use embedded_actions::{ActionsService, Fault, Outcome};
use embedded_kube::ApiError;
use embedded_kube::faults::{
    Interceptor, NoFaults, Outcome as ApiOutcome, RequestFate, RequestInfo,
};
use embedded_kube::{ApiServer, ApiServerOptions};
use impresario::actions::{Client, ClientOptions, TransportOptions};
use impresario::api::{
    ConfigUrl, Credentials, EphemeralRunner, EphemeralRunnerSet, EphemeralRunnerSetSpec,
    EphemeralRunnerSpec, ListenerConfig, crds,
};
use impresario::clock::Clock;
use impresario::listener::{Health, ListenerEnv, ListenerError, ListenerMetrics, run};
use impresario::messages::JitConfig;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use prometheus::TextEncoder;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::wire::Wire;

pub const URL: &str = "https://github.com/acme/widgets";
pub const TOKEN: &str = "ghp_of-the-stage";
pub const NAMESPACE: &str = "ci";
pub const RUNNER_SET: &str = "linux-set";
pub const SCALE_SET: &str = "linux";
/// When it begins.
pub const START: &str = "2026-03-04T05:06:07Z";

/// Everything around the listener.
pub struct Stage {
    pub api: ApiServer,
    pub service: ActionsService,
    /// A client of the Actions service, for what the controller does there.
    pub github: Client,
    pub sets: Api<EphemeralRunnerSet>,
    pub runners: Api<EphemeralRunner>,
    pub scale_set: i64,
    /// The listeners' way to the service.
    pub wire: Arc<Wire>,
    pub log: Arc<Mutex<Vec<String>>>,
    pub clock: Clock,
}

/// What a stage is set up with.
pub struct Setting {
    pub api: Arc<dyn Interceptor>,
    pub service: Option<Arc<dyn embedded_actions::Interceptor>>,
    pub crds: Vec<Value>,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            api: Arc::new(NoFaults),
            service: None,
            crds: crds().iter().map(|crd| json!(crd)).collect(),
        }
    }
}

impl Stage {
    pub async fn new() -> Self {
        Self::with(Setting::default()).await
    }

    pub async fn with(setting: Setting) -> Self {
        let clock = Clock::simulated(START.parse().unwrap());
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&log);
        let service = ActionsService::new(embedded_actions::Options {
            log: Some(Arc::new(move |line: &str| {
                lines.lock().unwrap().push(line.to_owned());
            })),
            interceptor: setting.service,
            ..embedded_actions::Options::new(clock.clone())
        });
        let api = ApiServer::new(ApiServerOptions {
            interceptor: setting.api,
            keep_log: true,
            ..ApiServerOptions::new(clock.clone(), 7)
        });
        for crd in setting.crds {
            api.install_crd(crd).unwrap();
        }
        let transport = transports(&service)
            .transport(&TransportOptions::default())
            .unwrap();
        let options = ClientOptions::new(
            ConfigUrl::parse(URL).unwrap(),
            Credentials::Token(TOKEN.into()),
        );
        let github = Client::new(options, transport, clock.clone()).unwrap();
        let labels = vec![SCALE_SET.to_owned()];
        let scale_set = github
            .create_scale_set(SCALE_SET, 1, &labels)
            .await
            .unwrap()
            .id;
        let wire = Wire::before(transports(&service));
        let client = api.client();
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}
        });
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
        let namespace = serde_json::from_value(namespace).unwrap();
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
        let stage = Self {
            sets: Api::namespaced(client.clone(), NAMESPACE),
            runners: Api::namespaced(client, NAMESPACE),
            api,
            service,
            github,
            scale_set,
            wire,
            log,
            clock,
        };
        stage.make_runner_set().await;
        stage
    }

    pub async fn make_runner_set(&self) {
        let set = EphemeralRunnerSet::new(RUNNER_SET, EphemeralRunnerSetSpec::default());
        self.sets
            .create(&PostParams::default(), &set)
            .await
            .unwrap();
    }

    pub fn config(&self) -> ListenerConfig {
        ListenerConfig {
            configure_url: URL.to_owned(),
            github_token: TOKEN.to_owned(),
            ephemeral_runner_set_namespace: NAMESPACE.to_owned(),
            ephemeral_runner_set_name: RUNNER_SET.to_owned(),
            runner_scale_set_id: self.scale_set,
            runner_scale_set_name: SCALE_SET.to_owned(),
            min_runners: 0,
            max_runners: 10,
            ..ListenerConfig::default()
        }
    }

    /// A listener between these bounds, from a pod of that name.
    pub fn listen(&self, pod: &str, min_runners: i64, max_runners: i64) -> Running {
        let config = ListenerConfig {
            min_runners,
            max_runners,
            ..self.config()
        };
        self.listen_with(pod, config)
    }

    pub fn listen_with(&self, pod: &str, config: ListenerConfig) -> Running {
        let (metrics, complaints) = ListenerMetrics::new(&config).unwrap();
        assert_eq!(complaints, Vec::<String>::new());
        let (metrics, health) = (Arc::new(metrics), Arc::new(Health::new()));
        let env = ListenerEnv {
            kube: self.api.client(),
            transports: self.wire.clone(),
            proxies: Default::default(),
            clock: self.clock.clone(),
            hostname: pod.to_owned(),
            version: "0.0.0-test".to_owned(),
            force_ghes: false,
            metrics: Arc::clone(&metrics),
            health: Arc::clone(&health),
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(run(config, env, async { drop(stopped.await) }));
        Running {
            metrics,
            health,
            task,
            stop,
        }
    }

    /// `replicas` and `patchID` of the runner set.
    pub fn target(&self) -> (i64, i64) {
        let set = self
            .api
            .get(
                "actions.github.com",
                "ephemeralrunnersets",
                NAMESPACE,
                RUNNER_SET,
            )
            .unwrap();
        let number = |key: &str| set["spec"][key].as_i64().unwrap_or_default();
        (number("replicas"), number("patchID"))
    }

    /// A runner object, as the controller makes it.
    pub async fn make_runner(&self, name: &str) {
        let runner = EphemeralRunner::new(name, EphemeralRunnerSpec::default());
        self.runners
            .create(&PostParams::default(), &runner)
            .await
            .unwrap();
    }

    /// A runner object that is registered in the service.
    pub async fn register(&self, name: &str) -> JitConfig {
        self.make_runner(name).await;
        self.github
            .generate_jit_config(self.scale_set, name, "")
            .await
            .unwrap()
    }

    pub async fn patch_status(&self, name: &str, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        self.runners
            .patch_status(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// The status of a runner, as it is stored.
    pub fn status(&self, name: &str) -> Value {
        let runner = self
            .api
            .get("actions.github.com", "ephemeralrunners", NAMESPACE, name);
        runner.map_or(Value::Null, |runner| runner["status"].clone())
    }

    /// Requests of this verb about this resource of ours, or subresource behind a slash, so far.
    pub fn requests(&self, verb: &str, resource: &str) -> u64 {
        let resource = match resource.split_once('/') {
            Some((resource, sub)) => format!("{resource}.actions.github.com/{sub}"),
            None => format!("{resource}.actions.github.com"),
        };
        let requests = self.api.requests();
        let matching = requests
            .iter()
            .filter(|(key, _)| key.verb == verb && key.resource == resource);
        matching.map(|(_, count)| count).sum()
    }

    /// Lines of the service's log that contain the text.
    pub fn logged(&self, text: &str) -> usize {
        let log = self.log.lock().unwrap();
        log.iter().filter(|line| line.contains(text)).count()
    }
}

/// A listener program that runs.
pub struct Running {
    pub metrics: Arc<ListenerMetrics>,
    pub health: Arc<Health>,
    pub task: JoinHandle<Result<(), ListenerError>>,
    stop: oneshot::Sender<()>,
}

impl Running {
    /// As SIGTERM does. Answers how the program ended.
    pub async fn terminate(self) -> Result<(), ListenerError> {
        self.stop.send(()).unwrap();
        timeout(Duration::from_secs(60), self.task)
            .await
            .expect("the program ends within the grace period of its pod")
            .unwrap()
    }

    /// As SIGKILL does.
    pub async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }

    /// The sum of all series of a metric whose labels contain the text.
    pub fn metric(&self, name: &str, labels: &str) -> f64 {
        let text = TextEncoder::new()
            .encode_to_string(&self.metrics.registry().gather())
            .unwrap();
        let series = text.lines().filter(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('{') && rest.contains(labels))
        });
        let values = series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum()
    }
}

/// Waits for a condition, up to an hour of virtual time.
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..36_000 {
        if condition() {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
    panic!("it did not happen within an hour: {what}");
}

pub async fn minutes(count: u64) {
    sleep(Duration::from_secs(60 * count)).await;
}

const MESSAGE_TYPE: &str = "RunnerScaleSetJobMessages";

/// News of a job.
pub fn job_element(message_type: &str, request: i64, runner: &str) -> Value {
    json!({
        "messageType": message_type, "runnerRequestId": request, "jobId": format!("job-{request}"),
        "ownerName": "acme", "repositoryName": "gears", "jobDisplayName": "deploy",
        "jobWorkflowRef": "acme/gears/.github/workflows/d.yml@refs/heads/x", "workflowRunId": 99,
        "eventName": "push", "runnerId": 4000, "runnerName": runner, "result": "failed",
        "scaleSetAssignTime": "2026-03-04T05:00:00Z", "runnerAssignTime": "2026-03-04T05:00:09Z",
        "finishTime": "2026-03-04T05:01:00Z",
    })
}

/// A message that answers a poll in place of the service's own.
pub fn message(id: i64, assigned: i64, elements: &[Value]) -> Fault {
    let body = json!({
        "messageId": id, "messageType": MESSAGE_TYPE,
        "body": Value::from(elements).to_string(),
        "statistics": {"totalAssignedJobs": assigned},
    });
    Outcome::Replace(200, Bytes::from(body.to_string())).into()
}

/// While it is set, every request is answered with 503.
#[derive(Default)]
pub struct Down(pub AtomicBool);

impl Interceptor for Down {
    fn request(&self, _: &RequestInfo) -> RequestFate {
        let outcome = if self.0.load(Ordering::Relaxed) {
            ApiOutcome::Refused(ApiError::new(503, "ServiceUnavailable", "etcd is gone"))
        } else {
            ApiOutcome::Answered
        };
        RequestFate {
            outcome,
            ..RequestFate::default()
        }
    }
}
