//! Whom an entry sends reviews to.

use std::fmt;

use serde_json::{Map, Value};

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServicePort {
    /// The Service's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The port.
    pub port: u16,
}

/// Whom an entry sends reviews to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// A Service of the cluster.
    Service(ServicePort),
    /// An address outside the cluster's Services.
    Url {
        /// The host: a name or an address.
        host: String,
        /// The port.
        port: u16,
    },
}

impl Target {
    /// Reads a `clientConfig`. The error continues the entry's name.
    pub(crate) fn of(client: &Map<String, Value>) -> Result<Self, String> {
        match (client.get("service").and_then(Value::as_object), client.get("url").and_then(Value::as_str)) {
            (Some(service), None) => {
                let text = |field: &str| match service.get(field).and_then(Value::as_str) {
                    Some(text) if !text.is_empty() => Ok(text.to_owned()),
                    _ => Err(format!(".clientConfig.service.{field} is missing")),
                };
                let port = match service.get("port") {
                    None | Some(Value::Null) => 443,
                    Some(port) => port
                        .as_u64()
                        .and_then(|port| u16::try_from(port).ok())
                        .filter(|port| *port > 0)
                        .ok_or(".clientConfig.service.port is not a port")?,
                };
                Ok(Self::Service(ServicePort { namespace: text("namespace")?, name: text("name")?, port }))
            }
            (None, Some(url)) => {
                Self::of_url(url).ok_or_else(|| format!(".clientConfig.url {url:?} is not https"))
            }
            _ => Err(".clientConfig has to have either a service or a url".to_owned()),
        }
    }

    fn of_url(url: &str) -> Option<Self> {
        let rest = url.strip_prefix("https://")?;
        let authority = rest.split(['/', '?', '#']).next()?;
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']')?;
                (host, port.strip_prefix(':'))
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let port = port.map_or(Some(443), |port| port.parse().ok())?;
        (!host.is_empty() && !host.contains('@')).then(|| Self::Url { host: host.to_owned(), port })
    }

    /// Whether it is a Service of the cluster.
    pub fn is_service(&self) -> bool {
        matches!(self, Self::Service(_))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(ServicePort { namespace, name, port }) => {
                write!(f, "service {namespace}/{name}:{port}")
            }
            Self::Url { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_host_and_port() {
        let rows = [
            ("https://127.0.0.1:8443/mutate/fail", Some(("127.0.0.1", 8443))),
            ("https://front.example/x", Some(("front.example", 443))),
            ("https://[::1]:9/x", Some(("::1", 9))),
            ("https:///x", None),
            ("https://a@b/x", None),
            ("https://a:b/x", None),
            ("http://a/x", None),
        ];
        for (url, wanted) in rows {
            let wanted = wanted.map(|(host, port)| Target::Url { host: host.to_owned(), port });
            assert_eq!(Target::of_url(url), wanted, "{url}");
        }
    }
}
