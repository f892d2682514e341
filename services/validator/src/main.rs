//! `sallyport-validator`: a backend of the suite.

use anyhow::Context;
use clap::Parser;

// The cheapest win in the suite: building and freeing JSON is what a review costs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("a TLS provider is already installed"))?;
    sallyport_validator::run(sallyport_validator::Args::parse())
        .await
        .context("sallyport-validator has stopped")
}
