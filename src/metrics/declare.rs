//! Declares metrics and writes their documentation in the same breath, so that the two
//! cannot part.

use prometheus::{
    GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry,
};

/// Metrics declared so far.
pub struct Declarations {
    registry: Registry,
    documentation: String,
}

impl Default for Declarations {
    fn default() -> Self {
        Self {
            registry: Registry::new(),
            documentation: "| metric | kind | labels | meaning |\n|---|---|---|---|\n".to_owned(),
        }
    }
}

type Declared<T> = Result<T, prometheus::Error>;

impl Declarations {
    /// A counter.
    pub fn counter(&mut self, name: &str, help: &str, labels: &[&str]) -> Declared<IntCounterVec> {
        let metric = IntCounterVec::new(Opts::new(name, help), labels)?;
        self.registry.register(Box::new(metric.clone()))?;
        self.row(name, "counter", help, labels);
        Ok(metric)
    }

    /// A gauge of whole numbers.
    pub fn gauge(&mut self, name: &str, help: &str, labels: &[&str]) -> Declared<IntGaugeVec> {
        let metric = IntGaugeVec::new(Opts::new(name, help), labels)?;
        self.registry.register(Box::new(metric.clone()))?;
        self.row(name, "gauge", help, labels);
        Ok(metric)
    }

    /// A gauge.
    pub fn float_gauge(&mut self, name: &str, help: &str, labels: &[&str]) -> Declared<GaugeVec> {
        let metric = GaugeVec::new(Opts::new(name, help), labels)?;
        self.registry.register(Box::new(metric.clone()))?;
        self.row(name, "gauge", help, labels);
        Ok(metric)
    }

    /// A histogram with these upper bounds.
    pub fn histogram(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
        bounds: &[f64],
    ) -> Declared<HistogramVec> {
        let options = HistogramOpts::new(name, help).buckets(bounds.to_vec());
        let metric = HistogramVec::new(options, labels)?;
        self.registry.register(Box::new(metric.clone()))?;
        self.row(name, "histogram", help, labels);
        Ok(metric)
    }

    /// The registry and a Markdown table of all that is in it.
    pub fn finish(self) -> (Registry, String) {
        (self.registry, self.documentation)
    }

    fn row(&mut self, name: &str, kind: &str, help: &str, labels: &[&str]) {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let row = format!("| `{name}` | {kind} | {} | {help} |\n", labels.join(", "));
        self.documentation.push_str(&row);
    }
}
