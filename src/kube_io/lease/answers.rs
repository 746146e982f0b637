//! What each answer to a request about the Lease means.

use std::future::{pending, ready};

use kube::core::Status;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

async fn meaning(code: u16, conflicts: &[u16]) -> Failure {
    let status = Status {
        code,
        message: "as it said".to_owned(),
        ..Status::default()
    };
    let error: kube::Result<()> = Err(kube::Error::Api(Box::new(status)));
    answered(SECOND, conflicts, ready(error)).await.unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn only_the_codes_that_say_so_mean_that_another_was_faster() {
    let create = &[409][..];
    let replace = &[404, 409][..];
    let read = &[][..];
    for (code, conflicts, expected) in [
        (409, create, true),
        (404, create, false),
        (409, replace, true),
        (404, replace, true),
        (403, replace, false),
        (500, replace, false),
        (409, read, false),
        (404, read, false),
    ] {
        let failure = meaning(code, conflicts).await;
        assert_eq!(
            failure == Failure::Conflict,
            expected,
            "{code}: {failure:?}"
        );
        if let Failure::Other(reason) = failure {
            assert!(reason.contains("as it said"), "{code}: {reason}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_does_not_answer_in_time_has_failed() {
    let begun = Instant::now();
    let silent = answered(SECOND, &[409], pending::<kube::Result<()>>()).await;
    let Err(Failure::Other(reason)) = silent else {
        panic!("{silent:?}")
    };
    assert!(reason.contains("does not answer"), "{reason}");
    assert_eq!(begun.elapsed(), SECOND);
    assert_eq!(answered(SECOND, &[], ready(Ok(7))).await, Ok(7));
}
