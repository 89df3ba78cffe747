//! Operations and assets.

use bytes::Bytes;
use catena_value::{NoCells, Value};
use hyper::Method;

use super::{Ask, Client, ClientError};
use crate::wire::path_encoded;

impl Client {
    /// Every operation of the catalogue.
    pub async fn operations(&self) -> Result<Vec<Value>, ClientError> {
        let list = self.json(Ask::get("/operations")).await?;
        let list = list.as_vector().ok_or_else(|| self.malformed("a catalogue that is no list"))?;
        Ok(list.iter(&NoCells).flatten().collect())
    }

    /// One operation, by any form of reference.
    pub async fn operation(&self, reference: &str) -> Result<Value, ClientError> {
        self.json(Ask::get(&format!("/operations/{}", path_encoded(reference)))).await
    }

    /// Registers an asset by the text of its metadata, and gives its ID as the venue wrote it.
    pub async fn register(&self, metadata: Bytes) -> Result<String, ClientError> {
        let id = self.json(Ask::new(Method::POST, "/assets").with_body(metadata)).await?;
        let id = id.as_str().ok_or_else(|| self.malformed("an asset ID that is no text"))?;
        Ok(id.to_owned())
    }
}
