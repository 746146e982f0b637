//! The life of a process that works while it holds the lease.
//!
//! However it ends, nothing is written without the lease: the fence is closed first, so that no
//! thread begins a write, then the writes under way get their answers, and only then the
//! lease is given up.

use std::time::Duration;

use futures::future::Either;

use crate::kube_io::{Candidate, DRAIN, Fence, LeaseLost};

/// How long the release may take, all requests together.
const RELEASE: Duration = Duration::from_secs(4);

/// Waits for the lease, works until that ends, the lease is lost or `stop` ends, and ends as
/// the module says. Without a candidate it works at once.
///
/// # Errors
///
/// Why the work could not begin or go on, or that the lease was lost; then the process is to
/// start anew.
pub async fn run_while_leading<W>(
    mut candidate: Option<Candidate>,
    fence: Fence,
    stop: impl Future<Output = ()>,
    work: impl FnOnce() -> anyhow::Result<W>,
) -> anyhow::Result<()>
where
    W: Future<Output = anyhow::Error>,
{
    tokio::pin!(stop);
    if let Some(candidate) = &mut candidate {
        let told = tokio::select! {
            biased;
            () = &mut stop => true,
            () = candidate.acquire() => false,
        };
        if told {
            // the write that would have taken it may be under way
            release(candidate).await;
            return Ok(());
        }
    }
    let mut is_held = true;
    let mut works = true;
    let mut working = match work() {
        Ok(work) => Either::Left(Box::pin(work)),
        Err(error) => Either::Right(std::future::ready(error)),
    };
    let ended = tokio::select! {
        biased;
        () = &mut stop => Ok(()),
        lost = hold(&mut candidate) => {
            is_held = false;
            Err(lost.into())
        }
        error = &mut working => {
            works = false;
            Err(error)
        }
    };
    fence.close();
    // the work goes on, so that what it has under way comes to its end
    let goes_on = async {
        if works {
            working.await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = fence.drained() => {}
        () = goes_on => {}
        lost = hold(&mut candidate), if is_held => {
            tracing::warn!(%lost, "while the last answers were waited for");
            is_held = false;
        }
        () = tokio::time::sleep(DRAIN) => {
            let writing = fence.writing();
            tracing::warn!(writing, "writes have no answer yet; a lease is left to expire");
            is_held = false;
        }
    }
    if let Some(candidate) = &mut candidate
        && is_held
    {
        release(candidate).await;
    }
    ended
}

async fn hold(candidate: &mut Option<Candidate>) -> LeaseLost {
    match candidate {
        Some(candidate) => candidate.hold().await,
        None => std::future::pending().await,
    }
}

async fn release(candidate: &mut Candidate) {
    if tokio::time::timeout(RELEASE, candidate.release())
        .await
        .is_err()
    {
        tracing::warn!("the lease is not released; it will expire");
    }
}

#[cfg(test)]
#[path = "leadership_tests.rs"]
mod tests;
