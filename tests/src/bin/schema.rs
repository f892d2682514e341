//! Writes the policy engine's table of Kubernetes' types from a real API server: `make schema`.

use std::fs;

use anyhow::{Context as _, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let table = sallyport_tests::schema::generate().await?;
    let path = sallyport_tests::schema::path();
    fs::write(&path, &table).with_context(|| format!("failed to write {}", path.display()))?;
    println!("{}: {} lines, {} bytes", path.display(), table.lines().count(), table.len());
    Ok(())
}
