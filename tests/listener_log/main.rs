//! What the listener logs. Alone in its process: whether a line of the program is logged at
//! all is decided once for all threads, so that tests beside this one could silence it.

#[path = "../listener/stage.rs"]
#[allow(dead_code, reason = "the stage serves another file too")]
mod stage;
#[path = "../listener/wire.rs"]
#[allow(dead_code, reason = "the stage serves another file too")]
mod wire;

use std::sync::{Arc, Mutex};

use base64::Engine;
use impresario::simulation::actions_service::Refusal;

use stage::{Stage, minutes, until};

#[tokio::test(start_paused = true)]
async fn the_log_of_a_run_shows_what_happened_and_no_secret() {
    let written = Written::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(written.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);

    let stage = Stage::new().await;
    stage.service.accept_only(["ghp_another"]);
    let held = Refusal::new(
        409,
        "RunnerScaleSetSessionConflictException",
        "pod-x has it",
    );
    stage.service.faults().next("open_session", held);
    let listener = stage.listen("listener-a", 1, 10);
    minutes(5).await;
    stage.service.accept_only([stage::TOKEN]);
    until("it listens", || stage.target() == (1, 0)).await;
    minutes(2).await;
    stage.service.expire_queue_tokens();
    minutes(2).await;
    stage.service.drop_sessions();
    minutes(2).await;
    listener.terminate().await.unwrap();

    let log = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    for words in [
        "Bad credentials",
        "pod-x has it",
        "check the token",
        "session deleted",
    ] {
        assert!(log.contains(words), "{words}\n{log}");
    }
    let encoded = base64::engine::general_purpose::STANDARD.encode(stage::TOKEN);
    for secret in [stage::TOKEN, &encoded, "Bearer", "eyJ"] {
        assert!(!log.contains(secret), "{secret}\n{log}");
    }
}

/// A log kept in memory.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl tracing_subscriber::fmt::MakeWriter<'_> for Written {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
