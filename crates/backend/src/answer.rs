//! What a set of policies decided, as the front is told.

use bytes::Bytes;
use sallyport_policy::Outcome;
use sallyport_proto::v1alpha1::{Cause, MutateResponse, Status, ValidateResponse};

/// The mutator's answer. A refusal has no patch (C-32).
pub fn mutate(outcome: Outcome) -> MutateResponse {
    let json_patch = if outcome.allowed { outcome.patch.unwrap_or_default().into() } else { Bytes::new() };
    let ValidateResponse { allowed, status, warnings, audit_annotations } =
        validate(Outcome { patch: None, ..outcome });
    MutateResponse { allowed, status, warnings, audit_annotations, json_patch }
}

/// The validator's answer; it has no room for a patch (C-27).
pub fn validate(outcome: Outcome) -> ValidateResponse {
    ValidateResponse {
        allowed: outcome.allowed,
        status: outcome.status.map(status),
        warnings: outcome.warnings,
        audit_annotations: outcome.audit_annotations.into_iter().collect(),
    }
}

fn status(status: sallyport_policy::Status) -> Status {
    let cause = |cause: sallyport_policy::Cause| Cause {
        reason: cause.reason,
        message: cause.message,
        field: cause.field,
    };
    Status {
        code: status.code.into(),
        reason: status.reason,
        message: status.message,
        causes: status.causes.into_iter().map(cause).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::{mutate, validate};
    use sallyport_policy::{Cause, Outcome, Status};

    fn outcome(allowed: bool) -> Outcome {
        let cause = Cause { reason: "r".into(), message: "m".into(), field: "f".into() };
        Outcome {
            allowed,
            status: Some(Status {
                code: 402,
                reason: "Forbidden".into(),
                message: "no".into(),
                causes: vec![cause],
            }),
            warnings: vec!["w".into()],
            audit_annotations: [("k".to_owned(), "v".to_owned())].into(),
            patch: Some(b"[]".to_vec()),
            results: Vec::new(),
        }
    }

    #[test]
    fn every_field_is_told() {
        let answer = validate(outcome(false));
        let status = answer.status.unwrap();
        assert_eq!((status.code, status.reason.as_str(), status.message.as_str()), (402, "Forbidden", "no"));
        let cause = &status.causes[0];
        assert_eq!((cause.reason.as_str(), cause.message.as_str(), cause.field.as_str()), ("r", "m", "f"));
        assert_eq!((answer.warnings, answer.audit_annotations["k"].as_str()), (vec!["w".to_owned()], "v"));
    }

    /// C-32: a refusal has no patch.
    #[test]
    fn only_an_allowed_mutation_has_a_patch() {
        assert_eq!(mutate(outcome(true)).json_patch, "[]");
        assert_eq!(mutate(outcome(false)).json_patch, "");
        assert!(!mutate(outcome(false)).allowed);
    }
}
