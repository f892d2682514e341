//! `sallyport certs status`: the certificates of a release, and who serves them.

use std::fmt::Write as _;
use std::io::Write;
use std::time::SystemTime;

use anstyle::Style;
use anyhow::bail;
use serde_json::{Value, json};

use crate::cluster::clock;
use crate::cluster::installation::{Installation, InstallationArgs};
use crate::cluster::inventory::{
    Entry, FREEZE, Holding, Inventory, ROTATE, STUCK, Standing, UNANSWERED, is_overdue, key_id,
};
use crate::cluster::serving::{self, Loaded, Process};
use crate::cluster::{Access, Cluster, Read, Unread};
use crate::leadership::{Condition, Leadership};
use crate::output::exit_status::ExitStatus;
use crate::output::format::Format;
use crate::output::terminal::{BAD, GOOD, NOTICE, QUIET, STRONG, plain};

/// Characters of a serial number in the table.
const SHORT_SERIAL: usize = 12;

const EXAMPLES: &str = "\
One line a certificate, one a pod that serves it. Pods are asked through the API server, which needs
the right to get pods/proxy; a pod that cannot be asked is shown so and is no fault.

Examples:
  sallyport certs status
  sallyport certs status --namespace prod --release gate
  sallyport certs status -o json | jq '.certificates[] | {name, notAfter}'

Exit status:
  0  all is well
  1  an error: nothing could be read
  3  something is not as it should be: expired, not trusted, stuck, or not what a pod serves";

/// Show the certificates of a release, and who serves them.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    installation: InstallationArgs,

    #[command(flatten)]
    access: Access,

    /// How it is written.
    #[arg(long, short, env = "SALLYPORT_OUTPUT", value_enum, default_value = "text", value_name = "FORMAT")]
    output: Format,
}

/// Everything that is known of a release's certificates at one time.
struct Status {
    installation: Installation,
    now: SystemTime,
    inventory: Inventory,
    processes: Read<Vec<Process>>,
    leadership: Read<Option<Leadership>>,
}

pub(super) async fn run(args: &StatusArgs) -> anyhow::Result<ExitStatus> {
    let installation = args.installation.installation()?;
    let cluster = Cluster::connect(&args.access).await?;
    let processes = async {
        let pods = serving::list_pods(&cluster, &installation).await?;
        Ok(serving::ask_processes(&cluster, &installation, &pods).await)
    };
    let (inventory, processes, leadership) = tokio::join!(
        Inventory::read(&cluster, &installation),
        processes,
        Leadership::read(&cluster, &installation)
    );
    let status = Status { installation, now: SystemTime::now(), inventory, processes, leadership };
    status.ensure_readable()?;
    match args.output {
        Format::Text => status.write(&mut anstream::stdout().lock())?,
        Format::Json => {
            let text = serde_json::to_string_pretty(&status.to_json())? + "\n";
            std::io::stdout().write_all(text.as_bytes())?;
        }
    }
    Ok(if status.faults().is_empty() { ExitStatus::Success } else { ExitStatus::Negative })
}

impl Status {
    /// Fails if no Secret could be read: then there is nothing to show.
    fn ensure_readable(&self) -> anyhow::Result<()> {
        let Err(unread) = &self.inventory.authority else { return Ok(()) };
        if self.inventory.members.values().all(Result::is_err) {
            bail!("no Secret of the {} could be read: {unread}", self.installation);
        }
        Ok(())
    }

    fn entries(&self) -> Vec<Entry> {
        let mut entries = self.inventory.entries(&self.installation, self.now);
        // A backend that was left out has no Secret, and nobody misses it.
        let has_others = self.inventory.members.values().any(|read| matches!(read, Ok(Some(_))));
        entries.retain(|entry| {
            let is_backend = matches!(entry.name, "mutator" | "validator");
            let is_absent = entry.member.is_some_and(|member| self.inventory.member(member).is_none());
            !(has_others && is_backend && is_absent && self.served_by(entry).is_empty())
        });
        entries
    }

    fn served_by(&self, entry: &Entry) -> Vec<&Process> {
        let Some(member) = entry.member else { return Vec::new() };
        self.processes.iter().flatten().filter(|process| process.member == member).collect()
    }

    /// Whether pods are expected to lag behind what is stored.
    fn is_moving(&self) -> bool {
        let Ok(Some(leadership)) = &self.leadership else { return false };
        let rotating = leadership.holds("Rotating");
        rotating.is_some_and(|rotating| rotating.age(self.now).is_some_and(|age| age <= STUCK))
    }

    fn conditions(&self) -> &[Condition] {
        let leadership = self.leadership.as_ref().ok().and_then(Option::as_ref);
        leadership.and_then(|leadership| leadership.conditions.as_deref()).unwrap_or_default()
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for entry in self.entries() {
            if let Some(fault) = &entry.fault {
                faults.push(format!("{}: {fault}", entry.name));
            } else if entry.certificate.as_ref().is_some_and(|c| is_overdue(c, self.now)) {
                if entry.name != "former" {
                    faults.push(format!("{}: it should have been renewed", entry.name));
                }
            } else if entry.issuer == Some(Standing::Foreign) {
                faults.push(format!("{}: nobody knows its issuer", entry.name));
            }
        }
        for process in self.processes.iter().flatten() {
            let loaded = process.loaded(&self.inventory);
            if matches!(loaded, Loaded::OtherCertificate | Loaded::OtherBundle)
                && !self.is_moving()
                && let Some(says) = process.describe(&self.inventory)
            {
                faults.push(format!("pod {}: {says}", process.pod));
            }
        }
        for condition in self.conditions() {
            let age = condition.age(self.now).unwrap_or_default();
            if condition.r#type == "Rotating" && condition.status == "True" && age > STUCK {
                let age = clock::format_span(age);
                faults.push(format!("the rotation has waited for {age}: {}", condition.message));
            } else if condition.r#type == "Ready" && condition.status == "False" {
                faults.push(format!("the cert-rotator is not ready: {}", condition.message));
            }
        }
        if let Some(authority) = self.inventory.authority()
            && authority.request().is_some()
            && authority.freeze().is_none()
            && authority.annotated_since(ROTATE).is_some_and(|at| clock::since(at, self.now) > UNANSWERED)
        {
            faults.push("the request for another authority is not answered".to_owned());
        }
        faults
    }

    /// What could not be read, and why.
    fn unread(&self) -> Vec<String> {
        let mut unread = Vec::new();
        let mut note = |what: String, why: Option<&Unread>| {
            unread.extend(why.map(|why| format!("{what}: {why}")));
        };
        let name = self.installation.authority_secret();
        note(format!("Secret {name}"), self.inventory.authority.as_ref().err());
        for (member, read) in &self.inventory.members {
            note(format!("Secret {}", self.installation.secret(*member)), read.as_ref().err());
        }
        note("pods".to_owned(), self.processes.as_ref().err());
        note("the cert-rotator's Lease".to_owned(), self.leadership.as_ref().err());
        unread
    }

    fn write(&self, output: &mut impl Write) -> anyhow::Result<()> {
        let head = ["NAME", "ISSUER", "SERIAL", "EXPIRES", "TRUSTED", "SERVED BY"];
        let mut table: Vec<(Style, [String; 6])> = vec![(STRONG, head.map(str::to_owned))];
        for entry in self.entries() {
            let style = if entry.fault.is_some() { BAD } else { Style::new() };
            let mut cells = self.cells(&entry);
            for process in self.served_by(&entry) {
                let says = process.describe(&self.inventory);
                let (style, says) = match says {
                    Some(says) => (NOTICE, format!("{} {says}", process.pod)),
                    None => (style, process.pod.clone()),
                };
                cells[5] = plain(&says).into_owned();
                table.push((style, std::mem::take(&mut cells)));
            }
            if cells.iter().any(|cell| !cell.is_empty()) {
                table.push((style, cells));
            }
        }
        let mut widths = [0; 5];
        for (_, cells) in &table {
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for (style, cells) in &table {
            let mut line = String::new();
            for (cell, width) in cells.iter().zip(widths) {
                // Writing to a String cannot fail.
                let _ = write!(line, "{cell:<width$}  ");
            }
            line.push_str(&cells[5]);
            writeln!(output, "{style}{}{style:#}", line.trim_end())?;
        }
        self.write_rest(output)
    }

    fn write_rest(&self, output: &mut impl Write) -> anyhow::Result<()> {
        for condition in self.conditions() {
            let Condition { r#type, status, reason, message, .. } = condition;
            let age = condition.age(self.now).map(|age| format!(" for {}", clock::format_span(age)));
            let text = format!("{type} is {status}{}: {reason} {message}", age.unwrap_or_default());
            writeln!(output, "{}", plain(text.trim_end_matches([':', ' '])))?;
        }
        if let Some(authority) = self.inventory.authority() {
            if let Some(request) = authority.request() {
                writeln!(output, "{NOTICE}another authority is asked for{NOTICE:#}: {}", plain(request))?;
            }
            if let Some(reason) = authority.freeze() {
                let since = authority
                    .annotated_since(FREEZE)
                    .map(|at| format!(", since {}", clock::format_instant(at)));
                let since = since.unwrap_or_default();
                writeln!(
                    output,
                    "{NOTICE}rotations and renewals are held{since}{NOTICE:#}: {}",
                    plain(reason)
                )?;
            }
        }
        for unread in self.unread() {
            writeln!(output, "{NOTICE}not read{NOTICE:#}: {}", plain(&unread))?;
        }
        let faults = self.faults();
        for fault in &faults {
            writeln!(output, "{BAD}fault{BAD:#}: {}", plain(fault))?;
        }
        if faults.is_empty() {
            writeln!(output, "{GOOD}all is well{GOOD:#}{QUIET}, as far as it could be read{QUIET:#}")?;
        }
        Ok(())
    }

    fn cells(&self, entry: &Entry) -> [String; 6] {
        let certificate = entry.certificate.as_ref();
        let issuer = entry.issuer.map_or("unknown", Standing::words);
        let trusted = match entry.trusted {
            None => "?",
            Some(true) => "yes",
            Some(false) => "no",
        };
        let Some(certificate) = certificate else {
            let fault = entry.fault.clone().unwrap_or_default();
            return [entry.name.to_owned(), "-".into(), "-".into(), fault, "-".into(), String::new()];
        };
        let end = certificate.not_after();
        let serial = certificate.serial();
        [
            entry.name.to_owned(),
            format!("{} {issuer}", key_id(issuer_key(entry))),
            serial.chars().take(SHORT_SERIAL).collect(),
            format!("{} ({})", clock::format_instant(end), clock::format_relative(end, self.now)),
            trusted.to_owned(),
            String::new(),
        ]
    }

    fn to_json(&self) -> Value {
        let certificates: Vec<Value> = self.entries().iter().map(|entry| self.entry_to_json(entry)).collect();
        let authority = self.inventory.authority();
        json!({
            "namespace": self.installation.namespace,
            "release": self.installation.release,
            "certificates": certificates,
            "conditions": self.conditions(),
            "request": authority.and_then(Holding::request),
            "freeze": authority.and_then(Holding::freeze),
            "faults": self.faults(),
            "notRead": self.unread(),
        })
    }

    fn entry_to_json(&self, entry: &Entry) -> Value {
        let served_by = self.served_by(entry).into_iter().map(|process| {
            let state = match process.loaded(&self.inventory) {
                Loaded::Current => "current",
                Loaded::OtherCertificate => "otherCertificate",
                Loaded::OtherBundle => "otherBundle",
                Loaded::Unknown => "unknown",
                Loaded::Incomparable => "incomparable",
            };
            let serial = process.page.as_ref().ok().map(|page| &page.serial);
            json!({"pod": process.pod, "state": state, "serial": serial,
                   "message": process.describe(&self.inventory)})
        });
        let certificate = entry.certificate.as_ref();
        json!({
            "name": entry.name,
            "issuer": certificate.map(|_| json!({
                "keyId": key_id(issuer_key(entry)),
                "standing": entry.issuer.map(Standing::words),
            })),
            "serial": certificate.map(sallyport_pki::Certificate::serial),
            "notBefore": certificate.map(|certificate| clock::format_instant(certificate.not_before())),
            "notAfter": certificate.map(|certificate| clock::format_instant(certificate.not_after())),
            "trusted": entry.trusted,
            "fault": entry.fault,
            "servedBy": served_by.collect::<Vec<_>>(),
        })
    }
}

/// The identifier of the key that signed it: an authority's own.
fn issuer_key(entry: &Entry) -> Option<&[u8]> {
    let certificate = entry.certificate.as_ref()?;
    if entry.member.is_some() { certificate.authority_key_id() } else { certificate.subject_key_id() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sallyport_pki::names::Member;

    use super::*;
    use crate::cluster::inventory::fixtures::{installation, sound, today};
    use crate::cluster::serving::{Page, page_of};

    fn status(age: Duration) -> Status {
        let (_, inventory) = sound(today());
        let process = |member: Member| {
            let page = Ok(page_of(inventory.member(member).unwrap()));
            Process { pod: format!("sallyport-{}-a", member.word()), member, page }
        };
        let processes = Ok(Member::ALL.map(process).into());
        Status {
            installation: installation(),
            now: today() + age,
            inventory,
            processes,
            leadership: Ok(None),
        }
    }

    fn text(status: &Status) -> String {
        let mut bytes = Vec::new();
        status.write(&mut bytes).unwrap();
        anstream::adapter::strip_str(&String::from_utf8(bytes).unwrap()).to_string()
    }

    fn rotating(status: &mut Status, since: Duration) {
        let since = clock::format_instant(status.now - since);
        let condition = Condition {
            r#type: "Rotating".into(),
            status: "True".into(),
            reason: "Published".into(),
            message: "pod b: it has another trust bundle".into(),
            last_transition_time: since,
        };
        let leadership = Leadership { conditions: Some(vec![condition]), ..Leadership::default() };
        status.leadership = Ok(Some(leadership));
    }

    #[test]
    fn a_sound_release_is_a_table_without_faults() {
        let status = status(Duration::ZERO);
        assert_eq!(status.faults(), [""; 0]);
        let text = text(&status);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("NAME"), "{text}");
        for (line, (name, pod)) in lines[1..].iter().zip([
            ("authority", ""),
            ("webhook", "sallyport-webhook-a"),
            ("mutator", "sallyport-mutator-a"),
            ("validator", "sallyport-validator-a"),
        ]) {
            assert!(line.starts_with(name) && line.ends_with(pod), "{line}");
            assert!(line.contains("in office") && line.contains("(in ") && line.contains("yes"), "{line}");
        }
        assert!(lines[5].starts_with("all is well"), "{text}");
        let machine = status.to_json();
        assert_eq!(machine["certificates"][1]["servedBy"][0]["state"], "current");
        assert_eq!(machine["certificates"][0]["serial"].as_str().unwrap().len(), 32);
        assert!(!machine.to_string().contains("PRIVATE"), "R-09");
    }

    #[test]
    fn what_is_not_as_stored_expired_or_stuck_is_a_fault() {
        let with = |age: Duration, change: fn(&mut Status)| {
            let mut status = status(age);
            change(&mut status);
            status.faults()
        };
        let set = |status: &mut Status, page: fn(&mut Page)| {
            page(status.processes.as_mut().unwrap()[0].page.as_mut().unwrap());
        };
        let day = Duration::from_hours(24);
        for (faults, wanted) in [
            (with(day * 80, |_| {}), "webhook: it should have been renewed"),
            (with(day * 91, |_| {}), "webhook: the certificate has expired"),
            (with(day, |s| s.inventory.authority = Ok(None)), "authority: nothing is stored"),
            (
                with(day, |s| {
                    s.processes.as_mut().unwrap()[1].page.as_mut().unwrap().serial = "0a".into();
                }),
                "pod sallyport-mutator-a: serves another certificate, serial 0a",
            ),
            (with(day, |s| rotating(s, STUCK * 2)), "the rotation has waited for 30 min: pod b"),
        ] {
            assert!(faults.iter().any(|fault| fault.starts_with(wanted)), "{wanted}: {faults:?}");
        }
        // While it rotates, pods lag behind; one that cannot be asked may be well.
        let mut moving = status(day);
        set(&mut moving, |page| page.bundle_sha256 = "0".into());
        assert_eq!(moving.faults().len(), 1);
        rotating(&mut moving, Duration::from_secs(60));
        assert_eq!(moving.faults(), [""; 0]);
        let unknown = with(day, |s| s.processes.as_mut().unwrap()[0].page = Err(Unread::TooMuch));
        assert_eq!(unknown, [""; 0]);
    }

    #[test]
    fn a_backend_that_was_left_out_is_not_missed_and_what_cannot_be_read_is_said() {
        let mut status = status(Duration::ZERO);
        status.inventory.members.insert(Member::Validator, Ok(None));
        assert_eq!(status.faults().len(), 1, "its pods are there: {:?}", status.faults());
        status.processes = Err(Unread::Forbidden("pods is forbidden".into()));
        assert_eq!(status.faults(), [""; 0]);
        let text = text(&status);
        assert!(text.contains("not read: pods: not allowed: pods is forbidden"), "{text}");
        assert!(!text.contains("validator"), "{text}");
        assert!(status.ensure_readable().is_ok());
        for read in status.inventory.members.values_mut() {
            *read = Err(Unread::Unauthorized);
        }
        assert!(status.ensure_readable().is_ok(), "the authority is read");
        status.inventory.authority = Err(Unread::Unauthorized);
        assert!(status.ensure_readable().is_err());
    }
}
