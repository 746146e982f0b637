//! The jobs of a demonstration: how many, how long, and when they come.

use std::ops::RangeInclusive;
use std::rc::Rc;
use std::str::FromStr;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::sleep;

use super::{Args, ScaleSet};
use crate::command::number;
use crate::simulation::cluster::Cluster;
use embedded_actions::JobSpec;

/// From the shortest to the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationRange {
    shortest: Duration,
    longest: Duration,
}

/// The longest job there is: GitHub ends one after five days on runners of one's own.
const LONGEST_JOB: Duration = Duration::from_secs(120 * 3600);
/// The least and the most jobs in a second.
const RATES: RangeInclusive<f64> = 0.001..=1_000.0;

impl FromStr for DurationRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (shortest, longest) = text.split_once("..").unwrap_or((text, text));
        let parse = number::time(Duration::ZERO, LONGEST_JOB);
        let range = Self {
            shortest: parse(shortest)?,
            longest: parse(longest)?,
        };
        if range.shortest > range.longest {
            let problem = "ends before it begins; give two durations from 0s to 120h";
            return Err(format!("\"{text}\" {problem}"));
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
        match text.strip_suffix("/s").unwrap_or(text).parse::<f64>() {
            Ok(rate) if RATES.contains(&rate) => Ok(Self::PerSecond(rate)),
            _ => Err(format!(
                "\"{text}\" is neither burst nor a number of jobs per second from {} to {}",
                RATES.start(),
                RATES.end()
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
        for text in [
            "0", "-1", "often", "5/s/s", "/s", "1e-300", "1e-20", "0.0009", "1e9", "inf", "NaN",
        ] {
            assert!(text.parse::<Arrival>().unwrap_err().contains(text));
        }
    }
}
