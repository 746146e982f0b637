//! Streams of jobs through the real listener while everything is late at random: each job gets
//! a runner (INV-16), and none is made for a job that is over (INV-2).

use std::time::Duration;

use embedded_actions::{JobSpec, JobState};
use impresario::api::{EphemeralRunner, EphemeralRunnerPhase};
use impresario::simulation::cluster::CONTROLLER_NAMESPACE;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::Instant;

use crate::stage::manifests::{RUN, SET};
use crate::stage::play;
use crate::world::World;

/// What is killed again and again.
#[derive(Clone, Copy)]
enum Killed {
    Controller,
    Listener,
}

/// How a stream of jobs is.
#[derive(Clone, Copy)]
struct Stream {
    jobs: usize,
    /// Seconds between two, at most.
    pause: u64,
    /// Seconds that each lasts, at most.
    lasting: u64,
    minimum: i64,
    maximum: i64,
    /// Of each request, event and call, at most.
    latency: Duration,
    /// After so many seconds all are done, whatever the seed.
    patience: u64,
}

#[test]
fn a_steady_stream_is_served() {
    let stream = Stream {
        jobs: 30,
        pause: 6,
        lasting: 20,
        minimum: 0,
        maximum: 20,
        latency: Duration::from_millis(800),
        patience: 400,
    };
    (0..12).for_each(|seed| stream.play(seed));
}

#[test]
fn a_pool_that_is_always_full_is_refilled() {
    let stream = Stream {
        jobs: 40,
        pause: 1,
        lasting: 12,
        minimum: 0,
        maximum: 4,
        latency: Duration::from_millis(800),
        patience: 600,
    };
    (100..112).for_each(|seed| stream.play(seed));
}

#[test]
fn bursts_of_short_jobs_beside_a_warm_minimum_are_served() {
    let stream = Stream {
        jobs: 40,
        pause: 2,
        lasting: 2,
        minimum: 2,
        maximum: 8,
        latency: Duration::from_millis(1_500),
        patience: 500,
    };
    (200..212).for_each(|seed| stream.play(seed));
}

#[test]
fn a_stream_is_served_by_controllers_that_are_killed_again_and_again() {
    let stream = Stream {
        jobs: 25,
        pause: 5,
        lasting: 15,
        minimum: 0,
        maximum: 6,
        latency: Duration::from_millis(500),
        patience: 700,
    };
    (300..312).for_each(|seed| stream.play_with(seed, Some(Killed::Controller)));
}

#[test]
fn a_stream_is_served_by_listeners_that_are_killed_again_and_again() {
    let stream = Stream {
        jobs: 25,
        pause: 5,
        lasting: 15,
        minimum: 1,
        maximum: 6,
        latency: Duration::from_millis(500),
        patience: 900,
    };
    (400..412).for_each(|seed| stream.play_with(seed, Some(Killed::Listener)));
}

impl Stream {
    fn play(self, seed: u64) {
        self.play_with(seed, None);
    }

    fn play_with(self, seed: u64, killed: Option<Killed>) {
        // the last of these says where it failed
        println!("seed {seed}");
        play(async || {
            let world = World::whole(seed).await;
            world
                .stage
                .settled_fixture(self.minimum, self.maximum)
                .await;
            world.seam.jitter(seed, self.latency);
            judge_creations(&world, self.minimum);
            let killing = async {
                let mut rng = StdRng::seed_from_u64(seed + 1);
                loop {
                    let time = rng.random_range(3_000..20_000);
                    world.stage.pass(Duration::from_millis(time)).await;
                    match killed {
                        Some(Killed::Controller) => world.restart(),
                        Some(Killed::Listener) => kill_listener(&world).await,
                        None => {}
                    }
                }
            };
            tokio::select! {
                biased;
                () = self.flow(&world, seed) => {}
                () = killing => {}
            }
            self.ends_well(&world, killed).await;
        });
    }

    async fn flow(self, world: &World, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        let begin = Instant::now();
        for number in 0..self.jobs {
            let lasting = Duration::from_millis(rng.random_range(500..=self.lasting * 1_000));
            let job = JobSpec::on(SET)
                .lasting(lasting)
                .named(format!("job {number}"));
            world.stage.actions.queue_job(job);
            let pause = rng.random_range(0..=self.pause * 1_000);
            world.stage.pass(Duration::from_millis(pause)).await;
        }
        let patience = Duration::from_secs(self.patience);
        world
            .stage
            .within(patience, "all jobs are done", async || {
                world.stage.jobs_done() == self.jobs
            })
            .await;
        let took = begin.elapsed().as_secs();
        assert!(took <= self.patience, "seed {seed}: {took} s");
        println!("seed {seed}: {took} s, {} runners", world.history.created());
    }

    async fn ends_well(self, world: &World, killed: Option<Killed>) {
        let minimum = usize::try_from(self.minimum).unwrap();
        world
            .stage
            .within(
                Duration::from_secs(400),
                "the pool is at rest",
                async || {
                    world.stage.runners().await.len() == minimum
                        && world.stage.actions.runners().len() == minimum
                },
            )
            .await;
        // a listener at rest says so once after its next poll; one that was killed often comes
        // back late
        let rest = match killed {
            Some(Killed::Listener) => 900,
            _ => 120,
        };
        world.stage.pass(Duration::from_secs(rest)).await;
        world.assert_sound().await;
    }
}

/// The listener's pod is deleted; the controller makes another.
async fn kill_listener(world: &World) {
    for pod in world.stage.listener_pods().await {
        world
            .stage
            .delete::<Pod>(CONTROLLER_NAMESPACE, &pod.name_any())
            .await;
    }
}

/// INV-2: where a runner is created, there are as many jobs that are not over as there then are
/// runners that are not, beside the minimum.
fn judge_creations(world: &World, minimum: i64) {
    let (api, actions) = (
        world.stage.cluster().api.clone(),
        world.stage.actions.clone(),
    );
    let minimum = usize::try_from(minimum).unwrap();
    world.seam.watch(move |request| {
        let creates = request.verb.is_some_and(|verb| verb.as_str() == "create");
        if !creates || !request.resource.starts_with("ephemeralrunners.") {
            return None;
        }
        let jobs = actions.jobs();
        let open = jobs
            .iter()
            .filter(|job| job.state != JobState::Completed)
            .count();
        let over = |name: &str| {
            let mut of_it = jobs.iter().filter(|job| job.runner_name == name);
            of_it.any(|job| job.state == JobState::Completed)
        };
        let runners: Vec<EphemeralRunner> = api.list_as(Some(RUN));
        let alive = runners.iter().filter(|runner| {
            let status = runner.status.clone().unwrap_or_default();
            let ended = status.phase == Some(EphemeralRunnerPhase::Succeeded);
            !ended && runner.metadata.deletion_timestamp.is_none() && !over(&runner.name_any())
        });
        let alive = alive.count();
        (alive + 1 > open + minimum).then(|| {
            format!(
                "INV-2: runner {} for {open} open jobs and {minimum} at rest",
                alive + 1
            )
        })
    });
}
