//! Waiting for a condition instead of for a while.

use std::time::Duration;

use tokio::time;

/// Longest that anything is waited for. Only a failing test waits this long, on a machine that is busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How often a condition within this process is looked at.
const NEAR: Duration = Duration::from_millis(5);
/// How often somebody else is asked.
const FAR: Duration = Duration::from_millis(100);

/// Waits until `holds`.
///
/// # Panics
/// When it never does; the message has `what`.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let asking = async {
        while !holds() {
            time::sleep(NEAR).await;
        }
    };
    assert!(time::timeout(PATIENCE, asking).await.is_ok(), "never: {what}");
}

/// Asks until there is an answer, and gives it. For conditions that an API server or another process is asked about.
///
/// # Panics
/// When there never is one; the message has `what`.
pub async fn answer<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            time::sleep(FAR).await;
        }
    };
    let answer = time::timeout(PATIENCE, asking).await;
    assert!(answer.is_ok(), "never: {what}");
    answer.unwrap_or_else(|_| unreachable!())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_comes_is_awaited() {
        let begun = time::Instant::now();
        eventually("a moment", || begun.elapsed() > Duration::from_secs(1)).await;
        let later = answer("more", async || (begun.elapsed() > Duration::from_secs(2)).then_some(3)).await;
        assert_eq!(later, 3);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "never: the moon")]
    async fn what_never_comes_is_named() {
        eventually("the moon", || false).await;
    }
}
