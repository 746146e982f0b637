//! The jobs of a demonstration: how many, how long, and when they come.

use std::rc::Rc;
use std::str::FromStr;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::sleep;

use super::{Args, ScaleSet};
use crate::command::duration;
use crate::simulation::actions_service::JobSpec;
use crate::simulation::cluster::Cluster;

/// From the shortest to the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationRange {
    shortest: Duration,
    longest: Duration,
}

impl FromStr for DurationRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (shortest, longest) = text.split_once("..").unwrap_or((text, text));
        let range = Self {
            shortest: duration::parse(shortest)?,
            longest: duration::parse(longest)?,
        };
        if range.shortest > range.longest {
            return Err(format!("\"{text}\" ends before it begins"));
        }
        Ok(range)
    }
}

impl DurationRange {
    fn draw(self, rng: &mut StdRng) -> Duration {
        let span = self.longest.as_secs_f64() - self.shortest.as_secs_f64();
        self.shortest + Duration::from_secs_f64(span * rng.random::<f64>())
    }
}

/// How jobs arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrival {
    /// All at once.
    Burst,
    /// So many per second.
    PerSecond(f64),
}

impl FromStr for Arrival {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "burst" {
            return Ok(Self::Burst);
        }
        match text.trim_end_matches("/s").parse::<f64>() {
            Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(Self::PerSecond(rate)),
            _ => Err(format!(
                "\"{text}\" is neither burst nor a number of jobs per second"
            )),
        }
    }
}

/// Queues the jobs, in turn for each scale set, as soon as the service knows it.
pub fn queue(
    args: &Args,
    cluster: &Rc<Cluster>,
    scale_sets: &[ScaleSet],
) -> impl Future<Output = ()> + use<> {
    let mut rng = StdRng::seed_from_u64(args.seed);
    let specs: Vec<JobSpec> = (0..args.jobs)
        .zip(scale_sets.iter().cycle())
        .map(|(number, set)| {
            JobSpec::on(&set.label)
                .lasting(args.job_duration.draw(&mut rng))
                .named(format!("job-{}", number + 1))
        })
        .collect();
    let (arrival, cluster) = (args.arrival, cluster.clone());
    async move {
        for spec in specs {
            if let Arrival::PerSecond(rate) = arrival {
                sleep(Duration::from_secs_f64(1.0 / rate)).await;
            }
            cluster.actions.queue_job(spec);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_one_or_two_and_drawn_between_them() {
        let range: DurationRange = "500ms..2s".parse().unwrap();
        let mut rng = StdRng::seed_from_u64(3);
        for _ in 0..100 {
            let drawn = range.draw(&mut rng);
            assert!((Duration::from_millis(500)..=Duration::from_secs(2)).contains(&drawn));
        }
        let one: DurationRange = "3s".parse().unwrap();
        assert_eq!(one.draw(&mut rng), Duration::from_secs(3));
        assert!(
            "3s..1s"
                .parse::<DurationRange>()
                .unwrap_err()
                .contains("3s..1s")
        );
        assert!("soon".parse::<DurationRange>().is_err());
    }

    #[test]
    fn arrival_is_a_burst_or_a_rate() {
        assert_eq!("burst".parse(), Ok(Arrival::Burst));
        assert_eq!("2.5".parse(), Ok(Arrival::PerSecond(2.5)));
        assert_eq!("4/s".parse(), Ok(Arrival::PerSecond(4.0)));
        for text in ["0", "-1", "often"] {
            assert!(text.parse::<Arrival>().unwrap_err().contains(text));
        }
    }
}
