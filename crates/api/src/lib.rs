//! The client side of a venue's API.
//!
//! [`wire`] has the constants of the API and what a job's statuses mean to a client; [`venue`] parses
//! the URL or did:web that names a venue; [`client`] is an async client of one venue. The client is
//! generic over its [`Transport`]: it builds requests and decodes responses, and the transport
//! decides how bytes reach the venue and which addresses may be contacted. JSON is read and written
//! as values, so that numbers stay exact.
//!
//! With the feature `client` there is also a transport with its own TCP and TLS connections,
//! `HttpTransport`, a client that follows a job by its event stream, and a `worker` that runs jobs.
//!
//! [`webhook`] checks who sent a job to a URL.
//!
//! [`known_venues`] remembers the identities of venues, in a file if its user names one.
//!
//! There is no engine inside, and nothing here reads the environment.

pub mod client;
pub mod known_venues;
pub mod limits;
pub mod venue;
pub mod wire;
#[cfg(feature = "client")]
pub mod worker;

pub use catena_auth::webhook;
pub use client::{Client, ClientError, Credentials, Transport};
pub use known_venues::{IdentityError, KnownVenues};
pub use venue::{VenueUrl, VenueUrlError};

#[cfg(feature = "client")]
pub use client::{HttpClient, HttpTransport, TransportError};
