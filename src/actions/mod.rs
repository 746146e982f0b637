//! Client of the GitHub Actions service.
