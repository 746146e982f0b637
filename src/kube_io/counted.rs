//! Counts requests to the API server one by one: what is asked for at once may take several.

use std::sync::Arc;

use tokio::time::Instant;

use crate::metrics::Metrics;

/// Counts requests.
#[derive(Clone)]
pub struct Counter(Arc<Metrics>);

impl Counter {
    /// Counts in these metrics.
    #[must_use]
    pub const fn new(metrics: Arc<Metrics>) -> Self {
        Self(metrics)
    }

    /// Waits for the answer to a request about objects of that kind, and counts it. One that
    /// nobody waits for any more counts as not answered.
    ///
    /// # Errors
    ///
    /// As the server answered.
    pub async fn count<T>(
        &self,
        verb: &str,
        kind: &str,
        answer: impl Future<Output = kube::Result<T>>,
    ) -> kube::Result<T> {
        let mut request = UnderWay {
            metrics: &self.0,
            verb,
            kind,
            code: "none".to_owned(),
            started: Instant::now(),
        };
        let answer = answer.await;
        request.code = code_of(verb, &answer);
        answer
    }
}

/// The client tells the code of refusals only.
fn code_of<T>(verb: &str, answer: &kube::Result<T>) -> String {
    match answer {
        Ok(_) if verb == "create" => "201".to_owned(),
        Ok(_) => "200".to_owned(),
        Err(kube::Error::Api(status)) => status.code.to_string(),
        Err(_) => "none".to_owned(),
    }
}

/// A request that is counted when it ends, however it does.
struct UnderWay<'a> {
    metrics: &'a Metrics,
    verb: &'a str,
    kind: &'a str,
    code: String,
    started: Instant,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let labels = [self.verb, self.kind, &self.code];
        let requests = &self.metrics.kubernetes;
        requests.ended(&labels, self.started.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use kube::core::Status;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_is_counted_once_however_it_ends() {
        let metrics = Arc::new(Metrics::new().unwrap());
        let counter = Counter::new(metrics.clone());
        let refused = Status::failure("no", "Forbidden").with_code(403);
        let refused = kube::Error::Api(refused.boxed());
        counter.count("create", "Pod", ready(Ok(()))).await.unwrap();
        counter.count("get", "Pod", ready(Ok(()))).await.unwrap();
        let answer = counter.count::<()>("patch", "Pod", ready(Err(refused)));
        answer.await.unwrap_err();
        let late = counter.count::<()>("delete", "Pod", pending());
        let late = tokio::time::timeout(Duration::from_secs(60), late);
        late.await.unwrap_err();
        let families = metrics.registry().gather();
        let mut families = families.iter();
        let all = families.find(|one| one.name() == "impresario_kubernetes_requests_total");
        let mut counted = Vec::new();
        for series in all.unwrap().get_metric() {
            let labels = series.get_label().iter();
            let labels: Vec<_> = labels.map(|pair| pair.value()).collect();
            counted.push((labels.join(" "), series.get_counter().get_value()));
        }
        counted.sort_by(|one, other| one.0.cmp(&other.0));
        let wanted = [
            "201 Pod create",
            "200 Pod get",
            "403 Pod patch",
            "none Pod delete",
        ];
        let mut wanted = wanted.map(|labels| (labels.to_owned(), 1.0));
        wanted.sort_by(|one, other| one.0.cmp(&other.0));
        assert_eq!(counted, wanted);
    }
}
