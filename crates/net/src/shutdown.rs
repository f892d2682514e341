//! One signal to stop, shared by everything in a process that must drain.

use std::sync::Arc;

use tokio::sync::watch;

/// Tells tasks that draining has begun. Cheap to clone; once begun it stays so.
#[derive(Clone, Debug)]
pub struct Shutdown {
    sender: Arc<watch::Sender<bool>>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

impl Shutdown {
    /// A shutdown that only [`Shutdown::trigger`] begins.
    #[must_use]
    pub fn new() -> Self {
        Self { sender: Arc::new(watch::Sender::new(false)) }
    }

    /// A shutdown that SIGTERM or SIGINT begins. Call inside a tokio runtime.
    ///
    /// # Errors
    /// When the signal handlers cannot be installed.
    pub fn on_signals() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let shutdown = Self::new();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let trigger = shutdown.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            trigger.trigger();
        });
        Ok(shutdown)
    }

    /// Begins the shutdown.
    pub fn trigger(&self) {
        self.sender.send_replace(true);
    }

    /// Whether it has begun.
    pub fn is_started(&self) -> bool {
        *self.sender.borrow()
    }

    /// Waits until it begins.
    pub async fn started(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.sender.subscribe().wait_for(|started| *started).await;
    }
}

#[cfg(test)]
mod tests {
    use super::Shutdown;

    #[tokio::test]
    async fn a_shutdown_reaches_every_clone_and_those_who_ask_late() {
        let shutdown = Shutdown::new();
        let waiting = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { shutdown.started().await }
        });
        assert!(!shutdown.is_started());
        shutdown.clone().trigger();
        waiting.await.unwrap();
        shutdown.started().await;
        assert!(shutdown.is_started());
    }
}
