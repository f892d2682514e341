//! The review that is measured.

use std::collections::HashMap;
use std::hint::black_box;
use std::path::{Path, PathBuf};

use sallyport_document::Document;
use sallyport_policy::{
    FailurePolicy, GroupVersionKind, GroupVersionResource, MutationSet, Operation, Request, Review, UserInfo,
    ValidationSet,
};
use serde_json::Value;
use serde_json::value::RawValue;

pub struct Sample {
    pub request: Request,
    pub object: Vec<u8>,
    options: Vec<u8>,
}

impl Sample {
    pub fn read() -> Self {
        let path = path();
        let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let sent = &serde_json::from_slice::<Value>(&text).unwrap()["request"];
        let raw: HashMap<String, Box<RawValue>> = serde_json::from_slice(&text).unwrap();
        let raw: HashMap<String, Box<RawValue>> = serde_json::from_str(raw["request"].get()).unwrap();
        let raw = |name: &str| raw[name].get().to_owned().into_bytes();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let user = &sent["userInfo"];
        let request = Request {
            uid: text(&sent["uid"]),
            kind: kind(&sent["kind"]),
            resource: resource(&sent["resource"]),
            request_kind: Some(kind(&sent["requestKind"])),
            request_resource: Some(resource(&sent["requestResource"])),
            name: text(&sent["name"]),
            namespace: text(&sent["namespace"]),
            operation: Operation::Create,
            user_info: UserInfo {
                username: text(&user["username"]),
                uid: text(&user["uid"]),
                groups: serde_json::from_value(user["groups"].clone()).unwrap(),
                extra: serde_json::from_value(user["extra"].clone()).unwrap(),
            },
            ..Request::default()
        };
        assert_eq!(sent["operation"], "CREATE", "{}", path.display());
        Self { request, object: raw("object"), options: raw("options") }
    }

    pub fn review(&self) -> Review<'_> {
        Review { object: &self.object, options: &self.options, ..Review::of(&self.request) }
    }

    pub fn parse(&self) {
        black_box(serde_json::from_slice::<Value>(black_box(&self.object)).unwrap());
    }

    pub fn read_document(&self) {
        black_box(Document::parse(black_box(&self.object)).unwrap());
    }

    /// How many policies match, all of which must hold.
    pub fn matching(&self, set: &ValidationSet) -> usize {
        let outcome = set.review(&self.review(), FailurePolicy::Fail);
        assert!(outcome.answer.allowed && outcome.answer.warnings.is_empty(), "{outcome:?}");
        outcome.results.len()
    }

    pub fn validate(&self, set: &ValidationSet) {
        black_box(set.review(black_box(&self.review()), FailurePolicy::Fail));
    }

    pub fn mutate(&self, set: &MutationSet) {
        black_box(set.review(black_box(&self.review()), FailurePolicy::Fail));
    }
}

fn path() -> PathBuf {
    if let Some(path) = std::env::var_os("REVIEW") {
        return path.into();
    }
    let corpora = std::env::var_os("SALLYPORT_CORPORA")
        .expect("REVIEW names a review, or SALLYPORT_CORPORA the conformance data beside which one lies");
    Path::new(&corpora).join("../probes/data/review.json")
}

fn kind(value: &Value) -> GroupVersionKind {
    let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
    GroupVersionKind { group: text("group"), version: text("version"), kind: text("kind") }
}

fn resource(value: &Value) -> GroupVersionResource {
    let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
    GroupVersionResource { group: text("group"), version: text("version"), resource: text("resource") }
}
