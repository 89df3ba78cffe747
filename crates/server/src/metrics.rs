//! Metrics, in the OpenMetrics text format.
//!
//! The hot path touches atomics and nothing else: every route has its own row, found by number, with
//! one counter for each status that the server uses. Names and labels are assembled when the metrics
//! are read.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::http::StatusCode;
use catena_engine::{Counters, Engine};
use catena_store::embedded::EmbeddedStore;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// Every status that has its own counter; others are counted as the last one.
const STATUSES: [u16; 24] = [
    200, 201, 202, 204, 206, 304, 400, 401, 403, 404, 405, 406, 409, 412, 413, 415, 416, 422, 429,
    503, 504, 507, 0, 500,
];

/// Upper bounds of the latency buckets, in seconds: half a millisecond is an unloaded invoke.
const BUCKETS: [f64; 12] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 10.0, 120.0];

/// The counters of the server.
pub(crate) struct Metrics {
    rows: Box<[Row]>,
    /// The number of open event streams.
    streams: AtomicU64,
}

/// The counters of one route.
struct Row {
    method: &'static str,
    path: &'static str,
    by_status: [AtomicU64; STATUSES.len()],
    by_time: [AtomicU64; BUCKETS.len() + 1],
    nanos: AtomicU64,
}

impl Row {
    fn new(method: &'static str, path: &'static str) -> Self {
        Row {
            method,
            path,
            by_status: [const { AtomicU64::new(0) }; STATUSES.len()],
            by_time: [const { AtomicU64::new(0) }; BUCKETS.len() + 1],
            nanos: AtomicU64::new(0),
        }
    }
}

impl Metrics {
    /// Counters for routes with these methods and paths, and for requests that no route matches.
    pub(crate) fn new(routes: impl Iterator<Item = (&'static str, &'static str)>) -> Self {
        let rows = routes.map(|(method, path)| Row::new(method, path));
        let rows = rows.chain([Row::new("any", "unmatched")]).collect();
        Metrics { rows, streams: AtomicU64::new(0) }
    }

    /// The row number for requests that no route matches.
    pub(crate) fn unmatched(&self) -> usize {
        self.rows.len() - 1
    }

    /// Counts a response of the route in this row.
    pub(crate) fn record_response(&self, number: usize, status: StatusCode, took: Duration) {
        let Some(row) = self.rows.get(number) else { return };
        let place = STATUSES.iter().position(|known| *known == status.as_u16());
        row.by_status[place.unwrap_or(STATUSES.len() - 1)].fetch_add(1, Relaxed);
        let seconds = took.as_secs_f64();
        let bucket = BUCKETS.iter().position(|bound| seconds <= *bound);
        row.by_time[bucket.unwrap_or(BUCKETS.len())].fetch_add(1, Relaxed);
        row.nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Counts an open event stream until the guard is dropped.
    pub(crate) fn count_stream(self: &Arc<Self>) -> StreamGuard {
        self.streams.fetch_add(1, Relaxed);
        StreamGuard(Arc::clone(self))
    }

    /// All metrics as OpenMetrics text.
    pub(crate) async fn to_openmetrics(
        self: &Arc<Self>,
        engine: &Engine,
        store: &Arc<EmbeddedStore>,
    ) -> String {
        let mut registry = Registry::with_prefix("catena");
        registry.register_collector(Box::new(RequestCollector(Arc::clone(self))));
        let collector = EngineCollector(engine.counters().await, Arc::clone(store));
        registry.register_collector(Box::new(collector));
        let mut text = String::new();
        match encode(&mut text, &registry) {
            Ok(()) => text,
            Err(fmt::Error) => String::new(),
        }
    }
}

/// Histograms have no labels beyond those of their family.
type NoLabels = [(&'static str, &'static str); 0];

/// Counts one open event stream while it lives.
pub(crate) struct StreamGuard(Arc<Metrics>);

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Relaxed);
    }
}

struct RequestCollector(Arc<Metrics>);

impl fmt::Debug for RequestCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("requests")
    }
}

impl Collector for RequestCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Requests answered";
        let mut family =
            encoder.encode_descriptor("http_requests", help, None, MetricType::Counter)?;
        for row in &self.0.rows {
            for (status, count) in STATUSES.iter().zip(&row.by_status) {
                let count = count.load(Relaxed);
                if count > 0 {
                    let status = status.to_string();
                    let labels = [("method", row.method), ("route", row.path), ("status", &status)];
                    let metric = family.encode_family(&labels)?;
                    ConstCounter::new(count).encode(metric)?;
                }
            }
        }
        let help = "Time from the head of a request to the head of its response";
        let mut family =
            encoder.encode_descriptor("http_request_seconds", help, None, MetricType::Histogram)?;
        for row in &self.0.rows {
            let counts: Vec<u64> = row.by_time.iter().map(|count| count.load(Relaxed)).collect();
            let total = counts.iter().sum::<u64>();
            if total == 0 {
                continue;
            }
            let bounds = BUCKETS.iter().copied().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
            let seconds = Duration::from_nanos(row.nanos.load(Relaxed)).as_secs_f64();
            let labels = [("method", row.method), ("route", row.path)];
            let mut metric = family.encode_family(&labels)?;
            metric.encode_histogram::<NoLabels>(seconds, total, &buckets, None)?;
        }
        gauge(&mut encoder, "sse_clients", "Open event streams", self.0.streams.load(Relaxed))
    }
}

struct EngineCollector(Counters, Arc<EmbeddedStore>);

impl fmt::Debug for EngineCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("engine and store")
    }
}

impl Collector for EngineCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let engine = &self.0;
        counter(&mut encoder, "jobs_invoked", "Jobs created", engine.invoked)?;
        let mut family = encoder.encode_descriptor(
            "jobs_ended",
            "Jobs that ended",
            None,
            MetricType::Counter,
        )?;
        let statuses = ["COMPLETE", "FAILED", "CANCELLED", "REJECTED", "TIMEOUT"];
        for (status, count) in statuses.into_iter().zip(engine.ended.iter().copied()) {
            let labels = [("status", status)];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
        gauge(&mut encoder, "jobs_running", "Jobs that are running", engine.running)?;
        gauge(&mut encoder, "jobs_queued", "Jobs that are waiting to run", engine.queued)?;
        gauge(&mut encoder, "watchers", "Subscribers of jobs", engine.watchers)?;
        counter(&mut encoder, "messages", "Messages accepted", engine.messages)?;
        counter(&mut encoder, "retries", "Attempts after the first", engine.retries)?;
        let store = self.1.counters();
        counter(&mut encoder, "store_commits", "Batches made durable", store.commits)?;
        counter(&mut encoder, "store_entries", "Commits acknowledged as durable", store.entries)?;
        counter(&mut encoder, "store_syncs", "Syncs on the commit path", store.syncs)?;
        counter(&mut encoder, "store_writes", "Rows changed", store.writes)?;
        counter(
            &mut encoder,
            "store_journal_bytes",
            "Bytes written to the journal",
            store.journal_bytes,
        )?;
        let size = self.1.disk_bytes();
        gauge(&mut encoder, "store_disk_bytes", "Size of the journal and the index", size)?;
        counter(&mut encoder, "store_stalls", "Waits for the flusher", store.stalls)?;
        let most = store.batch_entries_max;
        gauge(&mut encoder, "store_batch_entries_max", "Entries of the largest batch", most)?;
        seconds(&mut encoder, "store_sync_seconds", "Time spent in syncs", store.sync_nanos)?;
        seconds(&mut encoder, "store_flush_seconds", "Time spent in flushes", store.flush_nanos)
    }
}

fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, count: u64) -> fmt::Result {
    let metric = ConstCounter::new(count);
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

fn seconds(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, nanos: u64) -> fmt::Result {
    let metric = ConstCounter::new(Duration::from_nanos(nanos).as_secs_f64());
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, now: u64) -> fmt::Result {
    let metric = ConstGauge::new(i64::try_from(now).unwrap_or(i64::MAX));
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_counted_by_route_and_status() {
        let metrics = Arc::new(Metrics::new([("GET", "/livez")].into_iter()));
        let number = metrics.unmatched();
        metrics.record_response(number, StatusCode::NOT_FOUND, Duration::from_millis(3));
        metrics.record_response(number, StatusCode::IM_A_TEAPOT, Duration::from_secs(3600));
        let guard = metrics.count_stream();
        let mut registry = Registry::with_prefix("catena");
        registry.register_collector(Box::new(RequestCollector(Arc::clone(&metrics))));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let labels = r#"method="any",route="unmatched""#;
        for line in [
            format!("catena_http_requests_total{{{labels},status=\"404\"}} 1"),
            format!("catena_http_requests_total{{{labels},status=\"500\"}} 1"),
            format!("catena_http_request_seconds_count{{{labels}}} 2"),
            format!("catena_http_request_seconds_bucket{{le=\"0.005\",{labels}}} 1"),
            format!("catena_http_request_seconds_bucket{{le=\"+Inf\",{labels}}} 2"),
            "catena_sse_clients 1".to_owned(),
        ] {
            assert!(text.contains(&line), "{line} in\n{text}");
        }
        drop(guard);
        assert_eq!(metrics.streams.load(Relaxed), 0);
    }
}
