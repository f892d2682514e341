//! The `sallyport-cert-rotator` program.

use clap::Parser as _;
use sallyport_cert_rotator::Args;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("a crypto provider is installed already"))?;
    // Flags and the state of every task together are more than a stack should hold.
    Box::pin(sallyport_cert_rotator::run(Args::parse())).await.map_err(|error| {
        match error.downcast::<clap::Error>() {
            Ok(usage) => usage.exit(),
            Err(error) => error,
        }
    })
}
