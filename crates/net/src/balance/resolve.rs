//! Where a backend's replicas are.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Time for one look-up; the system's own resolver may go on in the background.
const LOOKUP: Duration = Duration::from_secs(2);

/// Resolves every `host:port` and joins the answers, in a fixed order. One that
/// fails fails the whole, so that a hiccup never empties a set that was good.
pub(crate) async fn resolve(hosts: &[String]) -> io::Result<Vec<SocketAddr>> {
    let mut addresses = BTreeSet::new();
    for host in hosts {
        let found =
            tokio::time::timeout(LOOKUP, tokio::net::lookup_host(host.as_str())).await.map_err(|_| {
                io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("looking up {host} took longer than {LOOKUP:?}"),
                )
            })??;
        addresses.extend(found);
    }
    Ok(addresses.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::resolve;

    #[tokio::test]
    async fn several_hosts_are_joined_without_repetition() {
        let hosts = ["127.0.0.1:2", "127.0.0.1:1", "127.0.0.1:2"].map(String::from);
        let found = resolve(&hosts).await.unwrap();
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), ["127.0.0.1:1", "127.0.0.1:2"]);
    }

    #[tokio::test]
    async fn one_host_that_cannot_be_resolved_fails_the_whole() {
        let hosts = ["127.0.0.1:1", "name.invalid:1"].map(String::from);
        assert!(resolve(&hosts).await.is_err());
    }
}
