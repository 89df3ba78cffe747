//! Black-box checks live in the test targets of this package; the library is empty.
