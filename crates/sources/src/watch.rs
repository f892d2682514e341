//! Following a directory.
//!
//! Content is compared, not events: kubelet swaps a symlink, editors rename,
//! synchronisers overwrite, and network file systems send no events at all.

use std::sync::Arc;
use std::time::Duration;

use crate::directory::{Contents, Directory, SourceError, interpret};
use crate::snapshot::Snapshot;

/// Polls the directory every `interval`, forever, and calls `on_change` with
/// each new snapshot, waiting for it before it looks again. Parses only when
/// the content differs from the last one.
///
/// A change counts when two readings a tenth of the interval apart agree, so
/// that a file caught while it is written is not taken for an edit. When the
/// directory vanishes, `on_change` is told once and the last snapshot stays.
pub async fn watch<F, D>(directory: Directory, snapshot: Arc<Snapshot>, interval: Duration, mut on_change: F)
where
    F: FnMut(Result<Arc<Snapshot>, SourceError>) -> D + Send,
    D: Future<Output = ()> + Send,
{
    let mut current = snapshot;
    let mut lost = false;
    loop {
        tokio::time::sleep(interval).await;
        match changed(&directory, &current, interval / 10).await {
            Ok(Some(contents)) => {
                lost = false;
                current = Arc::new(interpret(contents, Some(&current)));
                on_change(Ok(current.clone())).await;
            }
            Ok(None) => lost = false,
            Err(error) => {
                if !std::mem::replace(&mut lost, true) {
                    on_change(Err(error)).await;
                }
            }
        }
    }
}

/// The content, when it differs from the snapshot's and holds still.
async fn changed(
    directory: &Directory,
    current: &Snapshot,
    settle: Duration,
) -> Result<Option<Contents>, SourceError> {
    let first = read(directory).await?;
    if first.digest == current.digest {
        return Ok(None);
    }
    tokio::time::sleep(settle).await;
    let second = read(directory).await?;
    Ok((second.digest == first.digest).then_some(second))
}

async fn read(directory: &Directory) -> Result<Contents, SourceError> {
    let directory = directory.clone();
    tokio::task::spawn_blocking(move || directory.read()).await.map_err(|_| SourceError::Reader)?
}
