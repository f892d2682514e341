//! What the process and the build say of themselves: `process_…` and `sallyport_build_info`.
//!
//! The prometheus crate's own collector would bring procfs and libc for a few numbers that are plain
//! text under `/proc/self`. On other systems than Linux the process metrics are absent.

use std::collections::HashMap;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge, IntGaugeVec, Opts};

/// Ticks a second in `/proc/self/stat`: a constant of Linux' user interface, whatever the kernel's own HZ.
const USER_HZ: f64 = 100.0;

/// One metric family of a process: name, help, value at the time of the scrape.
type Reading = (&'static str, &'static str, fn() -> Option<f64>);

const CPU: Reading =
    ("process_cpu_seconds_total", "User and system CPU time spent by the process, in seconds.", cpu_seconds);
const GAUGES: [Reading; 5] = [
    ("process_resident_memory_bytes", "Resident memory of the process.", resident_bytes),
    ("process_open_fds", "Open file descriptors of the process.", open_descriptors),
    ("process_max_fds", "Limit of open file descriptors of the process.", descriptor_limit),
    ("process_threads", "Threads of the process.", threads),
    ("process_start_time_seconds", "Start of the process, in seconds since 1970.", start_seconds),
];

/// `sallyport_build_info{service,version}`, always 1.
pub(crate) fn build_info(service: &str) -> prometheus::Result<IntGaugeVec> {
    let info = IntGaugeVec::new(
        Opts::new("sallyport_build_info", "The build that runs; always 1."),
        &["service", "version"],
    )?;
    info.with_label_values(&[service, env!("CARGO_PKG_VERSION")]).set(1);
    Ok(info)
}

/// Reads `/proc/self` at each scrape.
pub(crate) struct ProcessCollector {
    descriptions: Vec<Desc>,
}

impl ProcessCollector {
    pub(crate) fn new() -> prometheus::Result<Self> {
        let descriptions = std::iter::once(CPU)
            .chain(GAUGES)
            .map(|(name, help, _)| Desc::new(name.into(), help.into(), Vec::new(), HashMap::new()))
            .collect::<Result<_, _>>()?;
        Ok(Self { descriptions })
    }
}

impl Collector for ProcessCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families = Vec::new();
        let (name, help, read) = CPU;
        if let (Some(value), Ok(counter)) = (read(), Counter::new(name, help)) {
            counter.inc_by(value);
            families.extend(counter.collect());
        }
        for (name, help, read) in GAUGES {
            if let (Some(value), Ok(gauge)) = (read(), Gauge::new(name, help)) {
                gauge.set(value);
                families.extend(gauge.collect());
            }
        }
        families
    }
}

/// Field `n` of `/proc/self/stat`, counted from 1 as in proc(5).
fn stat_field(n: usize) -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the program's name in parentheses and may hold anything, also parentheses.
    let rest = &stat[stat.rfind(')')? + 1..];
    rest.split_ascii_whitespace().nth(n.checked_sub(3)?)?.parse().ok()
}

fn cpu_seconds() -> Option<f64> {
    Some((stat_field(14)? + stat_field(15)?) / USER_HZ)
}

fn threads() -> Option<f64> {
    stat_field(20)
}

fn start_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot + stat_field(22)? / USER_HZ)
}

fn resident_bytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024.0)
}

fn descriptor_limit() -> Option<f64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn open_descriptors() -> Option<f64> {
    let count = std::fs::read_dir("/proc/self/fd").ok()?.count();
    // The listing itself holds one open.
    u32::try_from(count.saturating_sub(1)).ok().map(f64::from)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use prometheus::Registry;

    use super::{CPU, GAUGES, ProcessCollector, open_descriptors};

    #[test]
    fn every_reading_is_there_and_plausible() {
        for (name, _, read) in std::iter::once(CPU).chain(GAUGES) {
            let value = read().unwrap_or_else(|| panic!("{name} is absent"));
            assert!(value.is_finite() && value >= 0.0, "{name} {value}");
            if name != CPU.0 {
                assert!(value >= 1.0, "{name} {value}");
            }
        }
    }

    #[test]
    fn open_descriptors_follow_an_opened_file() {
        // Other tests open and close files at the same time: many more than they could.
        let before = open_descriptors().unwrap();
        let files: Vec<_> = (0..200).map(|_| std::fs::File::open("/proc/self/stat").unwrap()).collect();
        assert!(open_descriptors().unwrap() >= before + 100.0);
        drop(files);
    }

    #[test]
    fn the_collector_registers_and_yields_one_family_a_reading() {
        let registry = Registry::new();
        registry.register(Box::new(ProcessCollector::new().unwrap())).unwrap();
        assert_eq!(registry.gather().len(), 1 + GAUGES.len());
    }
}
