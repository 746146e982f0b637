//! The service limits how often it is asked.

use std::time::Duration;

use embedded_actions::{CallInfo, Fault, Interceptor, Refusal};
use std::sync::Arc;

use crate::stage::manifests::{SET, fixture};
use crate::stage::{Stage, Warden, play};
use impresario::clock::Clock;

/// Refuses the REST API's calls until a time, as its rate limit does.
struct RateLimit {
    clock: Clock,
    reset: i64,
    warden: Arc<Warden>,
}

impl Interceptor for RateLimit {
    fn intercept(&self, call: &CallInfo<'_>) -> Option<Fault> {
        let asked_for = self.warden.intercept(call);
        let limited =
            call.name == "create_registration_token" && self.clock.now().as_second() < self.reset;
        let refusal = limited.then(|| {
            Refusal::new(403, "", "API rate limit exceeded")
                .header("x-ratelimit-remaining", "0")
                .header("x-ratelimit-reset", self.reset.to_string())
                .into()
        });
        refusal.or(asked_for)
    }
}

#[test]
fn a_rate_limit_is_waited_out_with_few_calls_and_no_edit() {
    play(async || {
        let stage = Stage::embedded_with(24, |options| {
            let reset = options.clock.now().as_second() + 1800;
            let warden = Arc::new(Warden::default());
            let clock = options.clock.clone();
            options.actions_interceptor = Some(Arc::new(RateLimit {
                clock,
                reset,
                warden,
            }));
            options.keep_log = true;
        })
        .await;
        stage.start_controller();
        stage.apply(&fixture(1, 2)).await;
        stage.pass(Duration::from_secs(1790)).await;
        let log = stage.cluster().take_log();
        let asked = log
            .iter()
            .filter(|line| line.contains("create_registration_token -> 403"));
        let asked = asked.count();
        assert!((1..=2).contains(&asked), "{asked} calls");
        let set = stage.scale_set().await;
        let conditions = set.status.unwrap().conditions;
        let registered = conditions.iter().find(|one| one.type_ == "Registered");
        let registered = registered.unwrap();
        assert_eq!(registered.reason, "ServiceUnavailable");
        assert!(registered.message.contains("rate limit"), "{registered:?}");
        stage
            .within(Duration::from_secs(60), "it is settled", async || {
                stage.is_settled().await
            })
            .await;
        stage.queue_jobs(2, SET, Duration::from_secs(20));
        stage
            .until("all jobs are done", async || stage.jobs_done() == 2)
            .await;
    });
}
