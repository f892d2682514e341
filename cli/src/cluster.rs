//! A cluster, and what a release has in it.

mod api_server;
pub(crate) mod clock;
pub(crate) mod installation;
pub(crate) mod inventory;
pub(crate) mod serving;

pub(crate) use self::api_server::{
    Access, Cluster, Greeting, Read, Unread, is_name, selector, without_managed_fields,
};
