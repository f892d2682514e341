//! Policies are edited, and nothing is restarted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use crate::environment::Cluster;
use crate::life::{in_force, labels_of_a_dry_run};
use crate::load;
use crate::release::{MAIN, Release, merge};

/// The most that an edit may take, with the kubelet at its default of a minute.
const IN_FORCE: Duration = Duration::from_secs(120);

fn marks(value: &str) -> String {
    format!(
        r#"
apiVersion: sallyport.dev/v1alpha1
kind: MutationPolicy
metadata: {{name: generation}}
spec:
  matchConstraints:
    resourceRules:
      - {{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}}
  mutations:
    - overlay: {{metadata: {{labels: {{generation: {value}}}}}}}
"#
    )
}

/// An edit reaches the mounted directory, and from there the engine.
pub async fn edited(cluster: Arc<Cluster>) -> Result<()> {
    let cluster = &*cluster;
    cluster.namespace(load::NAMESPACE, &json!({})).await?;
    let mut values = Release::with_recipes(cluster);
    merge(&mut values, &json!({"policies": {"generation.yaml": marks("first")}}));
    MAIN.deploy(cluster, &values).await?;
    in_force(cluster, "generation", "first").await?;
    let pods = async || -> Result<Vec<String>> {
        Ok([MAIN.pods(cluster, "mutator").await?, MAIN.pods(cluster, "validator").await?].concat())
    };
    let before = pods().await?;
    merge(&mut values, &json!({"policies": {"generation.yaml": marks("second")}}));
    let edited = Instant::now();
    MAIN.deploy(cluster, &values).await?;
    in_force(cluster, "generation", "second").await?;
    // At each of the mutators, not only at the one that was asked last.
    let mut in_a_row = 0;
    while in_a_row < 20 {
        let is_new = labels_of_a_dry_run(cluster).await?["generation"] == "second";
        in_a_row = if is_new { in_a_row + 1 } else { 0 };
        ensure!(edited.elapsed() <= IN_FORCE, "the edit is not in force everywhere");
    }
    let took = edited.elapsed();
    eprintln!("     the edit was in force after {:.0} s", took.as_secs_f64());
    ensure!(took <= IN_FORCE, "the edit took {} s", took.as_secs());
    ensure!(pods().await? == before, "the edit restarted pods");
    Ok(())
}
