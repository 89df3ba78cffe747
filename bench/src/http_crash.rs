//! `http-crash`: no acknowledged job is lost, whenever the venue is killed.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use catena_job::JobId;
use catena_job::state::Status;
use catena_job::verify::{Expected, verify};
use catena_value::NoCells;

use crate::Fault;
use crate::json::{read, text as member};
use crate::web::{Client, Load, Options, Until, Venue, WaitMode, drive, get, invocation, post};

/// Kills the venue under load at random moments and checks every job it acknowledged.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    /// The number of kills.
    #[arg(long, default_value_t = 50)]
    crashes: usize,
    /// The number of connections.
    #[arg(long, default_value_t = 32)]
    connections: usize,
    /// The longest time before a kill in ms.
    #[arg(long, default_value_t = 600)]
    longest: u64,
    /// A run of a few seconds that only shows that everything works.
    #[arg(long)]
    small: bool,
}

/// Durations of jobs: some have ended when they are acknowledged, some are running when the venue is
/// killed.
const DELAYS_MS: [u32; 5] = [0, 1, 5, 25, 60];

/// A job that was acknowledged.
struct Acknowledged {
    id: String,
    text: String,
    /// The head, if the job was acknowledged as ended.
    head: Option<String>,
}

#[derive(Default)]
struct Submitting {
    address: Option<SocketAddr>,
    number: u64,
    request: Vec<u8>,
    /// The last request of each connection.
    asked: Vec<String>,
    acknowledged: Vec<Acknowledged>,
}

impl Load for Submitting {
    fn request(&mut self, connection: usize) -> &[u8] {
        self.number += 1;
        let number = self.number;
        let delay = DELAYS_MS[number as usize % DELAYS_MS.len()];
        let text = format!("job {number}");
        // Every other job runs inline, with one commit; the others have two.
        let body = match number % 2 {
            0 => invocation("test:echo", &format!(r#"{{"text":"{text}"}}"#)),
            _ => {
                let input = format!(r#"{{"delay":{delay},"input":{{"text":"{text}"}}}}"#);
                invocation("test:delay", &input)
            }
        };
        if self.asked.len() <= connection {
            self.asked.resize(connection + 1, String::new());
        }
        self.asked[connection] = text;
        let address = self.address.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
        self.request = post(address, "/api/v1/invoke", &body);
        &self.request
    }

    fn answer(&mut self, connection: usize, status: u16, body: &[u8]) -> Result<(), Fault> {
        if status != 201 {
            return Err(format!("{status}: {}", String::from_utf8_lossy(body)).into());
        }
        let job = read(body)?;
        let text = self.asked[connection].clone();
        let has_ended = member(&job, "status") == "COMPLETE";
        let head = has_ended.then(|| member(&job, "head"));
        self.acknowledged.push(Acknowledged { id: member(&job, "id"), text, head });
        Ok(())
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Fault> {
    let crashes = if args.small { 3 } else { args.crashes };
    let (folder, _temporary) = args.options.folder()?;
    let binary = args.options.binary()?;
    let data = folder.join("venue");
    let (mut known, mut live, mut number) = (BTreeSet::new(), 0, 0);
    for crash in 1..=crashes {
        let venue = Venue::start(&binary, &data, None)?;
        let after = Duration::from_millis(random() % args.longest.max(1));
        let acknowledged = until_killed(venue, args.connections, after, &mut number)?;
        let venue = Venue::start(&binary, &data, None)?;
        let mut client = Client::connect(venue.address)?;
        for job in &acknowledged {
            check(&mut client, venue.address, job)?;
            if !known.insert(job.id.clone()) {
                return Err(format!("{} was given twice", job.id).into());
            }
            live += usize::from(job.head.is_none());
        }
        if crash % 10 == 0 || crash == crashes {
            println!("{crash} crashes, {} jobs acknowledged, {live} of them running", known.len());
        }
        // Kill it once more while it is idle; the next start recovers from that.
        venue.kill()?;
    }
    let venue = Venue::start(&binary, &data, None)?;
    let found = every_job(&venue, &known)?;
    println!(
        "after {crashes} crashes under load: {} jobs acknowledged, all there, all verified, each ended once; {} more that were cut off before their answer ended, too",
        known.len(),
        found - known.len(),
    );
    Ok(())
}

/// Submits jobs until the venue is killed. Returns the acknowledged ones.
fn until_killed(
    venue: Venue,
    connections: usize,
    after: Duration,
    number: &mut u64,
) -> Result<Vec<Acknowledged>, Fault> {
    let address = venue.address;
    let mut jobs = Submitting { address: Some(address), number: *number, ..Submitting::default() };
    let ended = std::thread::scope(|scope| {
        let load = &mut jobs;
        let driving = scope.spawn(move || {
            drive(address, connections, Until::Asked(u64::MAX), WaitMode::Sleep, load).err()
        });
        std::thread::sleep(after);
        venue.kill()?;
        driving.join().map_err(|_| Fault::from("the generator broke"))
    });
    // Broken connections are expected because of the kill; a wrong response is an error.
    if let Some(error) = ended?
        && !error.is::<std::io::Error>()
        && error.to_string() != "the venue closed a connection"
    {
        return Err(error);
    }
    *number = jobs.number;
    Ok(jobs.acknowledged)
}

/// Checks one acknowledged job: it ends with the expected status and its history verifies.
fn check(client: &mut Client, address: SocketAddr, job: &Acknowledged) -> Result<(), Fault> {
    let path = format!("/api/v1/jobs/{}", job.id);
    let (status, body) = client.ask(&get(address, &path, "Prefer: wait=30\r\n"))?;
    if status != 200 {
        return Err(format!("{} was acknowledged and is answered with {status}", job.id).into());
    }
    let found = read(&body)?;
    let output = found.as_map().and_then(|found| found.field("output")?.as_map().cloned());
    let text = output.and_then(|output| output.field("text")?.as_str().map(str::to_owned));
    if member(&found, "status") != "COMPLETE" || text.as_deref() != Some(job.text.as_str()) {
        return Err(format!("{} is {}", job.id, String::from_utf8_lossy(&body)).into());
    }
    let head = member(&found, "head");
    if job.head.as_ref().is_some_and(|acknowledged| *acknowledged != head) {
        return Err(format!("{} had ended and went on", job.id).into());
    }
    check_history(client, &job.id, Some(&head))
}

/// Checks that a history verifies and ends once.
fn check_history(client: &mut Client, id: &str, head: Option<&str>) -> Result<(), Fault> {
    let (status, body) = client.get(&format!("/api/v1/jobs/{id}/history"))?;
    let document = read(&body)?;
    let job: JobId = id.parse().map_err(|_| format!("{id} is no job ID"))?;
    let expected = Expected { job: Some(job), ..Expected::default() };
    let report =
        verify(&document, &expected).map_err(|fault| format!("{id}: {status}, {fault}"))?;
    let records =
        document.as_map().and_then(|document| document.field("records")?.as_vector().cloned());
    let records = records.ok_or("a history has no records")?;
    let statuses = records.iter(&NoCells).map(|entry| {
        let entry = entry.map_err(|error| error.to_string())?;
        let record = entry.as_map().and_then(|entry| entry.field("record")).cloned();
        Ok::<_, Fault>(Status::parse(&member(&record.unwrap_or_default(), "status")))
    });
    let mut ends = 0;
    for status in statuses {
        ends += u32::from(status?.is_some_and(Status::is_terminal));
    }
    let is_head = head.is_none_or(|head| head == report.head.to_string());
    if ends != 1 || !report.status.is_terminal() || !is_head {
        return Err(format!("{id}: {ends} ends, {} at last", report.status).into());
    }
    Ok(())
}

/// Checks every job of the venue. Returns their number.
fn every_job(venue: &Venue, known: &BTreeSet<String>) -> Result<usize, Fault> {
    let mut client = Client::connect(venue.address)?;
    let (mut offset, mut missing) = (0, known.clone());
    loop {
        let (_, body) = client.get(&format!("/api/v1/jobs?limit=1000&offset={offset}"))?;
        let page = read(&body)?;
        let items = page.as_map().and_then(|page| page.field("items")?.as_vector().cloned());
        let items = items.ok_or("a list has no items")?;
        for item in items.iter(&NoCells) {
            let item = item.map_err(|error| error.to_string())?;
            let id = format!("0x{}", item.as_str().unwrap_or_default());
            if !missing.remove(&id) {
                // A job that is running again since the last start.
                let path = format!("/api/v1/jobs/{id}");
                client.ask(&get(venue.address, &path, "Prefer: wait=30\r\n"))?;
                check_history(&mut client, &id, None)?;
            }
            offset += 1;
        }
        if items.len() < 1_000 {
            break;
        }
    }
    match missing.first() {
        None => Ok(offset),
        Some(id) => Err(format!("{id} is in no list").into()),
    }
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness every kill is immediate, which is acceptable.
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}
