//! `worker-crash`: jobs over four workers that are killed, as is the venue. Each ends once, and no step that was
//! recorded is run again.
//!
//! The workers are processes of this program. For each job they tell a counting service that its step runs, record
//! the step, and tell the service that it is recorded.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use catena_job::verify::{Expected, verify};
use catena_value::Value;

use crate::Fault;
use crate::json::{items, member, read, text};
use crate::web::{Client, Load, Options, Until, Venue, drive, invocation, post, put};

/// Kills workers and the venue while jobs run, and checks that each job ended once and each step counts once.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    /// The number of jobs.
    #[arg(long, default_value_t = 10_000)]
    jobs: usize,
    /// The number of kills: two of a worker, then one of the venue, and so on.
    #[arg(long, default_value_t = 30)]
    kills: usize,
    /// A run of a few seconds that only shows that everything works.
    #[arg(long)]
    small: bool,
    /// Run as a worker: the addresses of the venue and of the counting service.
    #[arg(long, hide = true, num_args = 2)]
    as_worker: Option<Vec<SocketAddr>>,
}

const WORKERS: usize = 4;

/// Jobs that a worker claims at a time.
const BATCH: usize = 16;

/// The lease of workers, short so that a kill costs little time.
const SETTINGS: &str = "[limits]\nworker_lease = \"2s\"\n";

/// How long the last jobs may take after the last kill.
const PATIENCE: Duration = Duration::from_secs(120);

/// Histories that are verified.
const VERIFIED: usize = 100;

pub(crate) fn run(args: &Args) -> Result<(), Fault> {
    if let Some([venue, service]) = args.as_worker.as_deref() {
        return work(*venue, *service);
    }
    let (jobs, kills) = if args.small { (300, 3) } else { (args.jobs, args.kills) };
    let (folder, _temporary) = args.options.folder()?;
    std::fs::create_dir_all(&folder)?;
    let config = folder.join("crash.toml");
    std::fs::write(&config, SETTINGS)?;
    let mut site = Site {
        binary: args.options.binary()?,
        data: folder.join("venue"),
        config: config.display().to_string(),
        venue: None,
    };
    let address = site.start(None)?;
    define(address)?;
    submit(address, jobs, args.options.wait_mode())?;
    let service = Service::start()?;
    let begun = Instant::now();
    let mut workers = Workers { venue: address, service: service.address, running: Vec::new() };
    for _ in 0..WORKERS {
        workers.start()?;
    }
    for kill in 1..=kills {
        let goal = jobs * kill / (kills + 1);
        wait_until(|| Ok(service.counts().steps >= goal))?;
        if kill % 3 == 0 {
            site.start(Some(address))?;
        } else {
            workers.kill_oldest()?;
            workers.start()?;
        }
    }
    wait_until(|| Ok(completed(address)? == jobs))?;
    let took = begun.elapsed();
    drop(workers);
    check(address, jobs, kills, service.counts())?;
    println!(
        "worker-crash: {jobs} jobs over {WORKERS} workers, {kills} kills, {} of them of the venue: each ended \
         once; {} steps ran once, {} were repeated before they were recorded and none after; {:.1} s",
        kills / 3,
        jobs,
        service.counts().requests - jobs,
        took.as_secs_f64(),
    );
    Ok(())
}

/// Checks what the venue and the counting service say.
fn check(address: SocketAddr, jobs: usize, kills: usize, counts: Counts) -> Result<(), Fault> {
    let mut client = Client::connect(address)?;
    let (_, listed) = client.get(&format!("/api/v1/jobs?limit={VERIFIED}"))?;
    let mut verified = 0;
    for id in items(&read(&listed)?, "items").iter().filter_map(Value::as_str) {
        let (_, history) = client.get(&format!("/api/v1/jobs/{id}/history"))?;
        verify(&read(&history)?, &Expected::default()).map_err(|fault| fault.to_string())?;
        verified += 1;
    }
    let repeated = counts.requests.saturating_sub(jobs);
    let problem = if verified == 0 {
        "no history was verified".to_owned()
    } else if counts.steps != jobs {
        format!("{} of {jobs} steps were counted", counts.steps)
    } else if counts.after_record > 0 {
        format!("{} steps ran again after they had been recorded", counts.after_record)
    } else if repeated > kills * WORKERS * BATCH {
        format!("{repeated} steps were repeated by {kills} kills")
    } else {
        return Ok(());
    };
    Err(problem.into())
}

fn wait_until(mut holds: impl FnMut() -> Result<bool, Fault>) -> Result<(), Fault> {
    let begun = Instant::now();
    // The venue may be starting: an error is a reason to ask again.
    while !holds().unwrap_or(false) {
        if begun.elapsed() > PATIENCE {
            holds()?;
            return Err("the jobs did not end in time".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn completed(address: SocketAddr) -> Result<usize, Fault> {
    let (_, body) =
        Client::connect(address)?.get("/api/v1/jobs?op=o/crash&status=COMPLETE&limit=0")?;
    let total = member(&read(&body)?, "total").and_then(|total| total.as_i64());
    Ok(usize::try_from(total.ok_or("a list has no total")?)?)
}

fn define(address: SocketAddr) -> Result<(), Fault> {
    let body = r#"{"name":"crash","operation":{"adapter":"worker","queue":"crash"}}"#;
    match Client::connect(address)?.ask(&put(address, "/api/v1/operations/crash", body))? {
        (200, _) => Ok(()),
        (status, body) => Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into()),
    }
}

struct Submit(SocketAddr, Vec<u8>);

impl Load for Submit {
    fn request(&mut self, _connection: usize) -> &[u8] {
        self.1 = post(self.0, "/api/v1/invoke", &invocation("o/crash", "1"));
        &self.1
    }

    fn answer(&mut self, _connection: usize, status: u16, body: &[u8]) -> Result<(), Fault> {
        match status {
            200 | 201 => Ok(()),
            _ => Err(format!("{status}: {}", String::from_utf8_lossy(body)).into()),
        }
    }
}

fn submit(address: SocketAddr, jobs: usize, mode: crate::web::WaitMode) -> Result<(), Fault> {
    let until = Until::Asked(jobs as u64);
    drive(address, 16, until, mode, &mut Submit(address, Vec::new()))?;
    Ok(())
}

/// The venue, which is killed and started again.
struct Site {
    binary: PathBuf,
    data: PathBuf,
    config: String,
    venue: Option<Venue>,
}

impl Site {
    /// Starts the venue, after it was killed if it runs.
    fn start(&mut self, at: Option<SocketAddr>) -> Result<SocketAddr, Fault> {
        if let Some(venue) = self.venue.take() {
            venue.kill()?;
        }
        let options = ["--config", self.config.as_str()];
        let venue = match at {
            Some(address) => Venue::start_at(address, &self.binary, &self.data, &options)?,
            None => Venue::start_with(&self.binary, &self.data, None, &options)?,
        };
        let address = venue.address;
        self.venue = Some(venue);
        Ok(address)
    }
}

/// The worker processes, oldest first. They are killed when this is dropped.
struct Workers {
    venue: SocketAddr,
    service: SocketAddr,
    running: Vec<Child>,
}

impl Workers {
    fn start(&mut self) -> Result<(), Fault> {
        let worker = Command::new(std::env::current_exe()?)
            .args([
                "worker-crash",
                "--as-worker",
                &self.venue.to_string(),
                &self.service.to_string(),
            ])
            .stdin(Stdio::null())
            .spawn()?;
        self.running.push(worker);
        Ok(())
    }

    fn kill_oldest(&mut self) -> Result<(), Fault> {
        let mut oldest = self.running.remove(0);
        // An error means that it has already ended.
        let _ = oldest.kill();
        oldest.wait()?;
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        while !self.running.is_empty() {
            // An error means that it has already ended.
            let _ = self.kill_oldest();
        }
    }
}

/// What the counting service has seen.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    /// Jobs whose step ran.
    steps: usize,
    /// Runs of steps.
    requests: usize,
    /// Runs of steps that had been recorded.
    after_record: usize,
}

/// The counting service: `GET /run/<job>` and `GET /recorded/<job>`.
struct Service {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    counts: Counts,
    /// Whether the step of a job is recorded.
    steps: HashMap<String, bool>,
}

impl Seen {
    fn add(&mut self, path: &str) {
        if let Some(job) = path.strip_prefix("/run/") {
            let is_recorded = *self.steps.entry(job.to_owned()).or_default();
            self.counts.requests += 1;
            self.counts.after_record += usize::from(is_recorded);
            self.counts.steps = self.steps.len();
        } else if let Some(job) = path.strip_prefix("/recorded/") {
            self.steps.insert(job.to_owned(), true);
        }
    }
}

impl Service {
    fn start() -> Result<Service, Fault> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let kept = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = Arc::clone(&kept);
                std::thread::spawn(move || serve(stream, &seen));
            }
        });
        Ok(Service { address, seen })
    }

    fn counts(&self) -> Counts {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).counts
    }
}

/// Answers the requests of one connection, which come one at a time.
fn serve(mut stream: TcpStream, seen: &Mutex<Seen>) {
    let mut request = Vec::new();
    let mut part = [0; 1_024];
    while let Ok(count @ 1..) = stream.read(&mut part) {
        request.extend_from_slice(&part[..count]);
        if !request.ends_with(b"\r\n\r\n") {
            continue;
        }
        let text = String::from_utf8_lossy(&request).into_owned();
        let path = text.split(' ').nth(1).unwrap_or_default();
        seen.lock().unwrap_or_else(PoisonError::into_inner).add(path);
        request.clear();
        if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
            return;
        }
    }
}

/// Works until it is killed.
fn work(venue: SocketAddr, service: SocketAddr) -> Result<(), Fault> {
    let name = format!("crash-{}", std::process::id());
    let mut counting = Client::connect(service)?;
    let mut done: Vec<String> = Vec::new();
    loop {
        // The venue may be down: then connect again. Ends that were not answered are sent again.
        if work_connected(venue, &name, &mut counting, &mut done).is_err() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn work_connected(
    venue: SocketAddr,
    name: &str,
    counting: &mut Client,
    done: &mut Vec<String>,
) -> Result<(), Fault> {
    let mut client = Client::connect(venue)?;
    loop {
        let ends = done.join(",");
        let body = format!(
            r#"{{"worker":"{name}","queues":["crash"],"max":{BATCH},"waitMs":500,"done":[{ends}]}}"#
        );
        let (status, reply) = client.ask(&post(venue, "/worker/v1/claim", &body))?;
        if status != 200 {
            return Err(format!("{status}: {}", String::from_utf8_lossy(&reply)).into());
        }
        done.clear();
        for job in items(&read(&reply)?, "jobs") {
            let (id, fence) =
                (text(&job, "id"), member(&job, "fence").and_then(|fence| fence.as_i64()));
            let fence = fence.ok_or("a job has no fence")?;
            if items(&job, "steps").is_empty() {
                counting.get(&format!("/run/{id}"))?;
                let step = format!(r#"{{"fence":{fence},"key":"count","output":1}}"#);
                match client.ask(&post(venue, &format!("/worker/v1/jobs/{id}/step"), &step))? {
                    (200, _) => {}
                    // The job belongs to another worker.
                    (409, _) => continue,
                    (status, _) => return Err(format!("a step was answered {status}").into()),
                }
                counting.get(&format!("/recorded/{id}"))?;
            }
            done.push(format!(r#"{{"id":"{id}","fence":{fence},"output":1}}"#));
        }
    }
}
