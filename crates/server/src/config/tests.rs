//! Precedence of values, and what is refused.

use super::parse::Parse as _;
use super::variables::is_known_variable;
use super::*;

fn file(text: &str) -> FileSettings {
    FileSettings::parse(Path::new("catena.toml"), text).unwrap()
}

fn config(flags: &Flags, environment: &[(&str, &str)], text: &str) -> Result<Config, ConfigError> {
    let lookup = |name: &str| {
        environment.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned())
    };
    Config::layered(flags, &lookup, Some(&file(text)))
}

fn listening(address: &str) -> Config {
    let flags = Flags { listen: Some(address.to_owned()), ..Flags::default() };
    config(&flags, &[], "").unwrap()
}

#[test]
fn flags_take_precedence_over_environment_over_file_over_defaults() {
    let text = "listen = \"127.0.0.1:1\"\nname = \"from file\"\n[limits]\nlive_jobs = 5\n";
    let environment = [("CATENA_LISTEN", "127.0.0.1:2"), ("CATENA_LIMITS_RUNNING", "7")];
    let flags = Flags { listen: Some("127.0.0.1:3".to_owned()), ..Flags::default() };
    let all = config(&flags, &environment, text).unwrap();
    assert_eq!((all.listen.port(), &all.listen.origin), (3, &Origin::Flag("--listen".to_owned())));
    assert_eq!(all.name.origin, Origin::File("catena.toml".into()));
    assert_eq!((all.live_jobs.value, all.running.value), (5, 7));
    assert_eq!(all.grace.origin, Origin::Default);
    let without_flag = config(&Flags::default(), &environment, text).unwrap();
    assert_eq!(without_flag.listen.port(), 2);
    assert_eq!(without_flag.listen.origin.to_string(), "CATENA_LISTEN");
    assert_eq!(config(&Flags::default(), &[], text).unwrap().listen.port(), 1);
}

#[test]
fn every_default_can_be_parsed_and_has_the_designed_value() {
    let all = config(&Flags::default(), &[], "").unwrap();
    assert_eq!(all.engine_limits(), Limits::default());
    assert_eq!(*all.body_bytes.value, 10_000_000);
    assert_eq!(all.grace(), Duration::from_secs(5));
    assert!(!all.sse_by_job_id.value && !all.bench.value);
    assert_eq!(all.resolved().len(), SETTINGS.len());
}

#[test]
fn every_setting_is_documented_with_its_default_and_description() {
    let page = include_str!("../../../../docs/operate/configuration.md");
    for setting in SETTINGS {
        let default = match setting.default {
            "" => "–".to_owned(),
            text => format!("`{text}`"),
        };
        let row = format!("| `{}` | {default} | {} |", setting.name, setting.about);
        assert!(page.contains(&row), "no row {row}");
    }
    assert_eq!(page.matches("\n| `").count(), SETTINGS.len());
}

#[test]
fn anyone_may_use_a_venue_on_loopback_and_listed_identities_any_other() {
    for (address, expected) in
        [("127.0.0.1:1", true), ("[::1]:1", true), ("0.0.0.0:1", false), ("192.168.1.1:1", false)]
    {
        let config = listening(address);
        assert_eq!(config.is_anonymous_on(), expected, "{address}");
        let mode = if expected { AccessMode::Anyone } else { AccessMode::Listed };
        assert_eq!((config.access(), config.is_anyone_explicit()), (mode, false), "{address}");
        assert_eq!(config.allows_unbound_tokens(), expected, "{address}");
        assert_eq!(config.has_public_metrics(), expected, "{address}");
        assert_eq!(config.engine_limits().rate.is_none(), expected, "{address}");
    }
    let flags = Flags { public_access: Some("off".to_owned()), ..Flags::default() };
    let off = config(&flags, &[], "").unwrap();
    assert_eq!(off.access(), AccessMode::Keys);
    assert!(off.warnings()[0].contains("access = \"keys\""), "{:?}", off.warnings());
    let on = config(&Flags::default(), &[], "public_access = 'on'").unwrap();
    assert!(on.access() == AccessMode::Anyone && on.is_anyone_explicit());
}

#[test]
fn with_a_public_url_only_listed_identities_may_use_the_venue() {
    let resolved = |text: &str| config(&Flags::default(), &[], text).unwrap();
    let proxied = resolved("public_url = 'https://v.example'");
    assert_eq!(proxied.access(), AccessMode::Listed);
    assert!(!proxied.has_public_metrics() && !proxied.allows_unbound_tokens());
    let open = resolved("public_url = 'https://v.example'\naccess = 'anyone'");
    assert!(open.is_anonymous_on() && open.is_anyone_explicit() && !open.has_public_metrics());
    let keys = resolved("access = 'keys'");
    assert!(keys.warnings().is_empty() && !keys.allows_unbound_tokens());
    assert!(config(&Flags::default(), &[], "access = 'all'").is_err());
}

#[test]
fn an_unknown_variable_is_named_with_the_nearest() {
    for known in ["PATH", "CATENA_LISTEN", "CATENA_LIMITS_LIVE_JOBS", "CATENA_TOKEN", "CATENA_X_A"]
    {
        assert!(is_known_variable(known), "{known}");
    }
    let mut config = config(&Flags::default(), &[], "").unwrap();
    assert!(config.warnings().is_empty());
    config.unknown_variables = vec!["CATENA_LIMITS_LIVEJOB".to_owned()];
    assert!(!is_known_variable("CATENA_LIMITS_LIVEJOB"));
    let warning = "the environment variable CATENA_LIMITS_LIVEJOB is unknown and has no effect; \
                   the nearest is CATENA_LIMITS_LIVE_JOBS";
    assert_eq!(config.warnings(), [warning]);
}

#[test]
fn an_invalid_value_is_named_with_its_origin() {
    let refused = |text: &str| config(&Flags::default(), &[], text).unwrap_err().to_string();
    assert_eq!(
        refused("grace = 5"),
        "grace = \"5\" (catena.toml): expected a time such as 20ms, 5s, 10m, 24h or 7d"
    );
    assert!(refused("listen = \"here\"").contains("expected an address and a port"));
    assert!(refused("[log]\nformat = \"xml\"").contains("expected text or json"));
    assert!(refused("[limits]\nrunning = 0").contains("above 0"));
    let unknown = FileSettings::parse(Path::new("x.toml"), "[limits]\nlivejobs = 1").unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "x.toml has an unknown setting: limits.livejobs; the nearest is limits.live_jobs"
    );
    let free = "x-team = 'blue'\n[x-notes]\na = 1\nb = [2]";
    assert!(FileSettings::parse(Path::new("x.toml"), free).is_ok());
    assert!(FileSettings::parse(Path::new("x.toml"), "a = ").is_err());
}

#[test]
fn lists_are_written_with_commas_or_as_arrays() {
    let text = "cors_origins = [\"https://a.example\", \"https://b.example\"]";
    let all = config(&Flags::default(), &[("CATENA_ALLOW_HOSTS", "a:1, b:2,")], text).unwrap();
    assert_eq!(**all.cors_origins, ["https://a.example", "https://b.example"]);
    assert_eq!(**all.allow_hosts, ["a:1", "b:2"]);
    let flags: Vec<String> = SETTINGS.iter().map(SettingInfo::flag).collect();
    for flag in ["--allow-host", "--cors-origin", "--listen", "--limits-live-jobs"] {
        assert!(flags.contains(&flag.to_owned()), "{flag} in {flags:?}");
    }
}

#[test]
fn a_public_https_host_is_the_venues_did_and_one_of_its_names() {
    let did = |url: &str| {
        let flags = Flags { public_url: Some(url.to_owned()), ..Flags::default() };
        let config = config(&flags, &[], "hostnames = [\"Other.Example\"]").unwrap();
        (config.did("did:key:z"), config.all_hostnames())
    };
    let names = |host: &str| vec!["other.example".to_owned(), host.to_owned()];
    assert_eq!(did("https://v.example/"), ("did:web:v.example".into(), names("v.example")));
    assert_eq!(did("https://v.example:8443").0, "did:web:v.example%3A8443");
    assert_eq!(did("https://v.example/venue"), ("did:key:z".into(), names("v.example")));
    assert_eq!(did("http://v.example").0, "did:key:z");
    assert_eq!(did(""), ("did:key:z".into(), vec!["other.example".to_owned()]));
}

#[test]
fn times_and_sizes_are_parsed_strictly() {
    let time = |text| Time::parse(text).map(|time| time.as_millis());
    assert_eq!(time("20ms"), Ok(20));
    assert_eq!(time("7 d"), Ok(604_800_000));
    for bad in ["", "5", "s", "-1s", "1.5s", "99999999999999999999s", "18446744073709551615d"] {
        assert!(time(bad).is_err(), "{bad}");
    }
    let bytes = |text| Bytes::parse(text).map(|bytes| *bytes);
    assert_eq!((bytes("4096"), bytes("10MB")), (Ok(4096), Ok(10_000_000)));
    assert_eq!(bytes("100MiB"), Ok(104_857_600));
    for bad in ["", "MB", "10mb", "10 XB", "99999999999GiB"] {
        assert!(bytes(bad).is_err(), "{bad}");
    }
}
