//! AdmissionReviews as JSON lines: a review a line in, an answer a line out, in the same order.
//!
//! Many are under way at once, however slowly one is decided. A line costs at most its own answer: whatever is
//! wrong with it is said on its line, and the next one is answered.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write as _};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _};
use sallyport_admission::Review;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::decision::{Outcome, Tally, Verdict};
use super::reviewer::Reviewer;
use crate::input::lines::{Line, read_lines};

/// Reviews under way at once: enough to keep a front busy, few enough to be below its limits.
const CONCURRENCY: usize = 32;
/// Longest line, in bytes: twice what a front takes.
const MAX_LINE: u64 = 16 << 20;

/// Answers standard input on standard output until it ends.
pub(crate) async fn answer_lines(reviewer: Reviewer) -> anyhow::Result<Tally> {
    let (sender, mut receiver) = mpsc::channel(CONCURRENCY);
    // A thread, for reading standard input cannot be interrupted: it must not keep the process from ending.
    std::thread::Builder::new().name("standard-input".to_owned()).spawn(move || {
        read_lines(&mut io::stdin().lock(), MAX_LINE, |line| sender.blocking_send(line).is_ok());
    })?;
    let lines = futures::stream::poll_fn(move |context| receiver.poll_recv(context));
    let reviewer = Arc::new(reviewer);
    // Each a task of its own, so that parsing takes all processors.
    let mut answers = lines
        .enumerate()
        .map(|(index, line)| {
            let reviewer = Arc::clone(&reviewer);
            tokio::spawn(async move { answer_line(&reviewer, index + 1, line).await })
        })
        .buffered(CONCURRENCY);
    let mut output = BufWriter::new(io::stdout().lock());
    let mut tally = Tally::default();
    loop {
        // Written through whenever there is nothing to write at once: who sends one line and waits is answered.
        let answer = if let Some(answer) = answers.next().now_or_never() {
            answer
        } else {
            output.flush()?;
            answers.next().await
        };
        let Some(answer) = answer else { break };
        let (text, of_line) = answer??;
        tally.denied |= of_line.denied;
        tally.failed |= of_line.failed;
        output.write_all(text.as_bytes())?;
        output.write_all(b"\n")?;
    }
    output.flush()?;
    Ok(tally)
}

async fn answer_line(
    reviewer: &Reviewer,
    number: usize,
    line: io::Result<Line>,
) -> anyhow::Result<(String, Tally)> {
    let error = |code: Option<u16>, message: &str| {
        let error = json!({"error": {"line": number, "code": code, "message": message}});
        Ok((error.to_string(), Tally { failed: true, denied: false }))
    };
    let body = match line? {
        Line::Text(text) => Bytes::from(text),
        Line::TooLong => return error(Some(413), &format!("the line is longer than {MAX_LINE} bytes")),
    };
    // The front's own check, made here so that the others are not kept waiting for it.
    let (uid, api_version) = match Review::parse(&body) {
        Ok(review) => (review.request.uid.into_owned(), review.api_version),
        Err(fault) => return error(Some(400), &fault.to_string()),
    };
    let outcome = reviewer.review(body, None).await;
    if let Some(failure) = outcome.failure() {
        return error(failure.code, &failure.message);
    }
    let tally = Tally { denied: outcome.denied(), failed: false };
    Ok((join_decisions(&outcome, &uid, api_version.as_str()).to_string(), tally))
}

/// One answer from those of all doors.
fn join_decisions(outcome: &Outcome, uid: &str, api_version: &str) -> Value {
    let mut response = Map::new();
    response.insert("uid".to_owned(), json!(uid));
    response.insert("allowed".to_owned(), json!(!outcome.denied()));
    let mut warnings: Vec<&str> = Vec::new();
    let mut annotations = BTreeMap::new();
    let mut patch = Vec::new();
    for decision in &outcome.decisions {
        if let Verdict::Denied(status) = &decision.verdict {
            response.insert("status".to_owned(), json!(status));
        }
        for warning in &decision.warnings {
            // A door that is asked twice says it twice.
            if !warnings.contains(&warning.as_str()) {
                warnings.push(warning);
            }
        }
        annotations.extend(&decision.audit_annotations);
        patch.extend(&decision.patch);
    }
    if !outcome.denied() && !patch.is_empty() {
        response.insert("patchType".to_owned(), json!("JSONPatch"));
        response.insert("patch".to_owned(), json!(STANDARD.encode(json!(patch).to_string())));
    }
    if !warnings.is_empty() {
        response.insert("warnings".to_owned(), json!(warnings));
    }
    if !annotations.is_empty() {
        response.insert("auditAnnotations".to_owned(), json!(annotations));
    }
    json!({"apiVersion": api_version, "kind": "AdmissionReview", "response": response})
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::{Value, json};

    use super::join_decisions;
    use crate::door::Door;
    use crate::review::decision::{Decision, Outcome, Verdict};

    fn decision(door: Door, verdict: Verdict, patch: &Value) -> Decision {
        Decision {
            door,
            verdict,
            warnings: vec!["careful".into()],
            audit_annotations: [(door.name().replace('/', "-"), "x".to_owned())].into(),
            patch: patch.as_array().cloned().unwrap_or_default(),
        }
    }

    #[test]
    fn answers_of_doors_are_joined_in_their_order() {
        let one = json!({"op": "add", "path": "/a", "value": 1});
        let two = json!({"op": "add", "path": "/b", "value": 2});
        let mut outcome = Outcome {
            decisions: vec![
                decision(Door::MutateFail, Verdict::Allowed, &json!([one])),
                decision(Door::MutateIgnore, Verdict::Allowed, &json!([two])),
            ],
            object: None,
        };
        let joined = join_decisions(&outcome, "u", "admission.k8s.io/v1beta1");
        assert_eq!(
            (&joined["apiVersion"], &joined["kind"]),
            (&json!("admission.k8s.io/v1beta1"), &json!("AdmissionReview"))
        );
        let response = &joined["response"];
        let patch = STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&patch).unwrap(), json!([one, two]));
        assert_eq!(response["warnings"], json!(["careful"]));
        assert_eq!(response["auditAnnotations"], json!({"mutate-fail": "x", "mutate-ignore": "x"}));

        // C-25: a denial has a status and no patch.
        let status = json!({"code": 403, "message": "no"}).as_object().cloned().unwrap();
        outcome.decisions.push(decision(Door::ValidateFail, Verdict::Denied(status), &Value::Null));
        let response = join_decisions(&outcome, "u", "admission.k8s.io/v1")["response"].take();
        assert_eq!((&response["allowed"], &response["status"]["code"]), (&json!(false), &json!(403)));
        assert!(response.get("patch").is_none() && response.get("patchType").is_none());
    }
}
