//! `impresario crds`: prints the CustomResourceDefinitions, or writes them into a folder.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::api::crd_files;

/// Flags of `impresario crds`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct CrdsArgs {
    /// Write one file per CustomResourceDefinition into this folder, in place of printing them
    #[arg(long, value_name = "DIR")]
    pub write: Option<PathBuf>,
}

/// The CustomResourceDefinitions cannot be given out.
#[derive(Debug, thiserror::Error)]
pub enum CrdsError {
    /// The output is closed or full.
    #[error("cannot print the CustomResourceDefinitions")]
    Print(#[source] io::Error),
    /// The folder or a file in it cannot be written.
    #[error("cannot write {}; check that the folder is there and yours", path.display())]
    Write {
        /// What could not be written.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Runs the command. What it prints is one stream of YAML documents, ready for
/// `kubectl apply -f -`.
///
/// # Errors
///
/// When the output or the folder cannot be written to.
pub fn run(args: &CrdsArgs, output: &mut dyn Write) -> Result<(), CrdsError> {
    match &args.write {
        Some(folder) => write_into(folder),
        None => print(output),
    }
}

fn print(output: &mut dyn Write) -> Result<(), CrdsError> {
    for file in crd_files() {
        match write!(output, "---\n{}", file.yaml) {
            // `| head` has seen enough
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            result => result.map_err(CrdsError::Print)?,
        }
    }
    Ok(())
}

fn write_into(folder: &Path) -> Result<(), CrdsError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        |source| CrdsError::Write { path, source }
    };
    fs::create_dir_all(folder).map_err(failed(folder))?;
    for file in crd_files() {
        let path = folder.join(file.name);
        fs::write(&path, file.yaml).map_err(failed(&path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_one_stream_of_four_documents() {
        let mut output = Vec::new();
        run(&CrdsArgs::default(), &mut output).unwrap();
        let text = String::from_utf8(output).unwrap();
        assert_eq!(
            text.matches("\nkind: CustomResourceDefinition\n").count(),
            4
        );
        assert_eq!(text.lines().filter(|line| *line == "---").count(), 4);
    }

    #[test]
    fn a_folder_is_made_and_holds_one_file_each() {
        let folder = tempfile::tempdir().unwrap();
        let args = CrdsArgs {
            write: Some(folder.path().join("new")),
        };
        run(&args, &mut io::sink()).unwrap();
        for file in crd_files() {
            let written = fs::read_to_string(folder.path().join("new").join(file.name)).unwrap();
            assert_eq!(written, file.yaml);
        }
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let args = CrdsArgs {
            write: Some(file.path().join("below")),
        };
        let error = run(&args, &mut io::sink()).unwrap_err().to_string();
        assert!(error.contains("below"), "{error}");
    }
}
