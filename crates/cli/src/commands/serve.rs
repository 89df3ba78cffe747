//! `catena serve` and `catena up`: run a venue until a signal stops it.

use std::sync::Arc;

use catena_adapters::Options;
use catena_engine::{Adapter, Engine};
use catena_sandbox::abort::AbortMark;
use catena_server::{AbortWatch, Config, Venue};

use crate::commands::executor::Executors;
use crate::exit::Exit;
use crate::limits::{RELEASE_INTERVAL, RELEASED_BYTES_MIN};
use crate::output::{Failure, Output};
use crate::settings::Settings;
use crate::venue::DEFAULT;

/// How this process leaves a mark when it aborts.
const WATCH: AbortWatch = AbortWatch {
    start: catena_sandbox::abort::mark_aborts,
    share: catena_sandbox::abort::share_words,
    parse: |bytes| AbortMark::parse(bytes).map(|mark| (mark.signal, mark.work)),
};

/// Run a venue.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    settings: Settings,
}

/// Runs a venue.
pub(crate) fn serve(args: &Args, output: &mut Output) -> Result<(), Failure> {
    let config = args.settings.load()?;
    run(config, output, |_, _| {})
}

/// Runs a venue and prints how to try it.
pub(crate) fn up(args: &Args, output: &mut Output) -> Result<(), Failure> {
    let config = args.settings.load()?;
    run(config, output, |venue, output| {
        let url = format!("http://{}", venue.address());
        output.note("");
        output.note(&format!("  Catena is running at {url}"));
        output.note("");
        output.note("  Try it in another terminal:");
        output.note("");
        output.note(&format!(
            "    curl -s {url}/api/v1/invoke -d '{{\"operation\":\"test:echo\",\"input\":{{\"text\":\"hello\"}}}}'"
        ));
        let venue = if url == DEFAULT { String::new() } else { format!(" --venue {url}") };
        output.note(&format!("    catena run test:echo -i '{{\"text\":\"hello\"}}'{venue}"));
        output.note("");
        output.note(&format!("  API reference: {url}/docs    Stop with Ctrl-C."));
        output.note("");
    })
}

fn run(
    config: Config,
    output: &mut Output,
    ready: impl FnOnce(&Venue, &Output),
) -> Result<(), Failure> {
    let started = catena_server::log::start(config.log_format.value, &config.log_level.value);
    started.map_err(|error| Failure::new(Exit::Invalid, "config_invalid", error))?;
    catena_sandbox::allocator::return_large_blocks();
    let adapters = adapters(&config)?;
    let failed = |error: std::io::Error| {
        Failure::new(Exit::Invalid, "runtime_failed", format!("could not start: {error}"))
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(failed)?;
    let settings = config.clone();
    let served = runtime.block_on(async {
        let stop = stop_signal().map_err(failed)?;
        let assets = catena_adapters::demo_assets();
        let venue = Venue::start_watched(config, adapters, assets, Some(WATCH)).await;
        let venue = venue.map_err(|error| venue_failed(&error))?;
        let executors = Executors::for_venue(&settings, venue.address());
        let executors = executors.map(|executors| tokio::spawn(executors.keep_running()));
        ready(&venue, output);
        let releasing = tokio::spawn(release_memory(venue.engine().clone()));
        let served = venue.serve_until(stop).await.map_err(|error| venue_failed(&error));
        releasing.abort();
        // Dropping the task ends the executors.
        if let Some(executors) = executors {
            executors.abort();
            let _ = executors.await;
        }
        served
    });
    // The store is closed. Nothing that still runs may delay the end of the process.
    runtime.shutdown_background();
    served
}

/// Returns memory to the kernel after requests that needed much of it. Never returns.
async fn release_memory(engine: Engine) {
    let mut highest = 0;
    loop {
        tokio::time::sleep(RELEASE_INTERVAL).await;
        let held = engine.memory_held();
        highest = held.max(highest);
        if highest >= RELEASED_BYTES_MIN {
            let _ =
                tokio::task::spawn_blocking(catena_sandbox::allocator::release_free_memory).await;
            highest = held;
        }
    }
}

/// The built-in adapters with the operator's policy.
fn adapters(config: &Config) -> Result<Vec<Arc<dyn Adapter>>, Failure> {
    let hosts = config.allow_hosts.iter().map(String::as_str);
    let venues = config.allow_venues.iter().map(String::as_str);
    let options = Options::parse(hosts, venues).map_err(|error| {
        let text = format!("allow_hosts or allow_venues: {error}");
        Failure::new(Exit::Invalid, "config_invalid", text)
    })?;
    let known_venues = Some(config.data.join("known-venues"));
    let mut adapters = catena_adapters::all(Options {
        known_venues,
        agents: config.agents(),
        plan: config.plan(),
        default_environment: config.default_environment.value.clone(),
        connections_max: options.connections_max.min(catena_server::outbound_descriptors()),
        ..options
    });
    adapters.extend(crate::test_operations::adapters());
    Ok(adapters)
}

/// A future that is ready when SIGTERM or SIGINT arrives.
pub(super) fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

fn venue_failed(error: &catena_server::VenueError) -> Failure {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    Failure::new(Exit::Invalid, "venue_failed", text)
}
