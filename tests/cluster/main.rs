//! The suite on a real cluster, installed with Helm: what an operator does to it, while others create pods.
//!
//! The scenarios share one cluster and run one after the other, in the order of the list below; each brings the
//! releases that it needs into the state that it needs, so any one can be run alone (`tests/e2e NAME`).
//! `tests/e2e` starts the cluster and sets the environment; see `environment.rs` for what is read.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod dead;
mod disturbance;
mod environment;
mod life;
mod load;
mod policies;
mod release;
mod rights;
mod rotation;
mod scale;
mod workload;

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use environment::Cluster;
use libtest_mimic::{Arguments, Trial};

fn main() -> anyhow::Result<()> {
    sallyport_tests::install_tls_provider();
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let runtime =
        Arc::new(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?);
    let cluster = Arc::new(runtime.block_on(Cluster::connect())?);

    let mut trials = Vec::new();
    let mut scenario = |name: &str, is_long: bool, run: fn(Arc<Cluster>) -> Scenario| {
        let (runtime, cluster) = (Arc::clone(&runtime), Arc::clone(&cluster));
        let title = name.to_owned();
        let trial = Trial::test(name, move || {
            let begun = Instant::now();
            let outcome = runtime.block_on(run(cluster));
            eprintln!("     {title} took {:.0} s", begun.elapsed().as_secs_f64());
            outcome.map_err(|error| format!("{error:#}").into())
        });
        trials.push(trial.with_ignored_flag(is_long));
    };
    scenario("failed_install_blocks_nobody", false, |c| Box::pin(dead::a_failed_install(c)));
    scenario("two_releases_come_and_go_with_helm_3_and_4", false, |c| Box::pin(life::two_releases(c)));
    scenario("seeds_walk_through", false, |c| Box::pin(workload::seeds_walk_through(c)));
    scenario("nothing_is_lost_over_kept_connections", false, |c| Box::pin(disturbance::kept_connections(c)));
    scenario("nothing_is_lost_over_new_connections", false, |c| {
        Box::pin(disturbance::new_connections_each(c))
    });
    scenario("a_drain_stops_at_the_budget", false, |c| Box::pin(disturbance::a_drain(c)));
    scenario("mutators_scale_alone_by_hand", false, |c| Box::pin(scale::by_hand(c)));
    scenario("mutators_scale_alone_by_load", false, |c| Box::pin(scale::by_load(c)));
    scenario("edited_policies_are_in_force_without_a_restart", false, |c| Box::pin(policies::edited(c)));
    scenario("a_replaced_cluster_role_brings_the_registration_back", false, |c| {
        Box::pin(life::replaced_owner(c))
    });
    scenario("everything_dead_locks_nobody_out", false, |c| Box::pin(dead::everything(c)));
    scenario("two_dead_releases_both_recover", false, |c| Box::pin(dead::two_releases(c)));
    scenario("a_deleted_namespace_is_freed_by_one_command", true, |c| Box::pin(dead::a_deleted_namespace(c)));
    scenario("the_authority_is_rotated_under_load", false, |c| Box::pin(rotation::under_load(c)));
    scenario("service_accounts_use_what_they_are_granted", false, |c| Box::pin(rights::audit(c)));
    libtest_mimic::run(&arguments, trials).exit();
}

/// A scenario that runs.
type Scenario = std::pin::Pin<Box<dyn Future<Output = anyhow::Result<()>>>>;
