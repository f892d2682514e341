//! The convenience for a process that is one service.

use std::net::SocketAddr;

use prometheus::Registry;

use crate::admin::Admin;
use crate::arguments::TelemetryArgs;
use crate::readiness::Readiness;
use crate::subscriber::{TelemetryError, Tracing, install};

/// Telemetry of a process that is one service: [`install`] and one [`Admin`].
#[derive(Debug)]
pub struct Telemetry {
    tracing: Tracing,
    admin: Admin,
    address: SocketAddr,
}

/// Installs logs and traces for the process and makes the service's registry and readiness.
///
/// `service` is the short name: `webhook`, `mutator`, `validator`, `cert-rotator`. Call once, inside a
/// tokio runtime.
pub fn start(service: &'static str, args: &TelemetryArgs) -> Result<Telemetry, TelemetryError> {
    let tracing = install(service, args)?;
    Ok(Telemetry { tracing, admin: Admin::new(service), address: args.admin_address })
}

impl Telemetry {
    /// The service's metrics registry.
    pub fn registry(&self) -> &Registry {
        self.admin.registry()
    }

    /// The service's readiness conditions.
    pub fn readiness(&self) -> &Readiness {
        self.admin.readiness()
    }

    /// The admin endpoint, for adding pages before [`serve_admin`](Self::serve_admin) or for serving it by hand.
    pub fn admin_mut(&mut self) -> &mut Admin {
        &mut self.admin
    }

    /// Binds `--admin-address` and serves it for as long as the runtime lives: metrics and health must be
    /// readable while the service drains. Returns the bound address.
    pub async fn serve_admin(&self) -> Result<SocketAddr, TelemetryError> {
        let address = self.address;
        let bound = async {
            let server = self.admin.bind(address).await?;
            let local = server.local_addr()?;
            tokio::spawn(server.serve(std::future::pending()));
            Ok(local)
        };
        bound.await.map_err(|source| TelemetryError::Admin { address, source })
    }

    /// Sends the spans that are still buffered; bounded in time. The last thing that a service does.
    pub async fn shutdown(self) {
        self.tracing.shutdown().await;
    }
}
