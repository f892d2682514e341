//! `sallyport`: the suite at your desk.

use std::process::ExitCode;

use clap::Parser;

// The embedded suite lives of building and freeing JSON, like the services themselves.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = sallyport_cli::Args::parse();
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        eprintln!("error: a TLS provider is already installed");
        return ExitCode::FAILURE;
    }
    sallyport_cli::run(arguments).await
}
