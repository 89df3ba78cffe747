//! TLS of the server: a certificate and its key from two files, read again on request.
//!
//! This is for operators without a proxy. It uses rustls on ring, TLS 1.2 and 1.3, and offers HTTP/2
//! next to HTTP/1.1.
//! Files that cannot be used prevent the start; when they are read again later, the certificate in
//! use stays.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::config::Config;
use crate::limits::TLS_FILE_BYTES_MAX;

/// The name of HTTP/2 in the negotiation of the protocol.
pub(crate) const HTTP2: &[u8] = b"h2";

/// Why a certificate or its key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Only one of the two files is configured.
    #[error("`tls_cert` and `tls_key` must be set together")]
    Incomplete,
    /// A file could not be read.
    #[error("could not read {}", .file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file contains something else.
    #[error("{} cannot be used: {reason}", .file.display())]
    Invalid {
        /// The file.
        file: PathBuf,
        /// The problem with it.
        reason: String,
    },
}

/// The certificate that the server presents.
pub(crate) struct TlsIdentity {
    certificate: PathBuf,
    key: PathBuf,
    current: RwLock<TlsAcceptor>,
}

impl TlsIdentity {
    /// Reads the configured files. `None` if none are configured.
    pub(crate) fn from_config(config: &Config) -> Result<Option<Arc<Self>>, TlsError> {
        let (certificate, key) = match (&config.tls_cert.value, &config.tls_key.value) {
            (None, None) => return Ok(None),
            (Some(certificate), Some(key)) => (certificate.clone(), key.clone()),
            _ => return Err(TlsError::Incomplete),
        };
        let current = RwLock::new(acceptor(&certificate, &key)?);
        Ok(Some(Arc::new(TlsIdentity { certificate, key, current })))
    }

    /// What accepts connections with the current certificate.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.current.read().clone()
    }

    /// Reads the files again. New connections use them.
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        let acceptor = acceptor(&self.certificate, &self.key)?;
        *self.current.write() = acceptor;
        Ok(())
    }
}

fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, TlsError> {
    let invalid = |file: &Path, reason: String| TlsError::Invalid { file: file.into(), reason };
    let text = read(certificate)?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(|error| invalid(certificate, error.to_string()))?;
    if chain.is_empty() {
        return Err(invalid(certificate, "it contains no certificate".to_owned()));
    }
    let private = PrivateKeyDer::from_pem_slice(&read(key)?)
        .map_err(|error| invalid(key, error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid(certificate, error.to_string()))?;
    let mut config = config
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| invalid(certificate, error.to_string()))?;
    config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |source| TlsError::Io { file: file.into(), source };
    let mut bytes = Vec::new();
    let opened = fs::File::open(file).map_err(failed)?;
    opened.take(TLS_FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}
