//! Access to labels, and to metadata that may name a person.

use clap::ValueEnum;

/// Clients that get no labels and macros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LabelPolicy {
    /// All clients
    Everybody,
    /// Clients with a signed address, whatever it allows
    Links,
}

/// Words in keys whose values can name a patient, a member of staff, or a case. Scanners fill them
/// in freely, so it is better to hide too much.
const WORDS: [&str; 32] = [
    "accession",
    "admission",
    "annotation",
    "artist",
    "author",
    "barcode",
    "birth",
    "case",
    "comment",
    "copyright",
    "creator",
    "description",
    "diagnos",
    "document",
    "filename",
    "host",
    "identif",
    "keyword",
    "label",
    "name",
    "operator",
    "owner",
    "patient",
    "person",
    "physician",
    "reference",
    "slide_id",
    "source_file",
    "studyid",
    "subject",
    "title",
    "user",
];

/// True if the value of a property is shown only on request.
pub(crate) fn may_name_a_person(key: &str) -> bool {
    let key = key.to_lowercase();
    WORDS.iter().any(|word| key.contains(word)) && key != MODEL
}

/// Contains such a word, but describes the device.
const MODEL: &str = "dicom.manufacturermodelname";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_may_name_a_person_are_known() {
        for key in [
            "aperio.User",
            "aperio.Filename",
            "aperio.Title",
            "aperio.Patient ID",
            "aperio.OriginalFileName",
            "tiff.ImageDescription",
            "tiff.Artist",
            "tiff.HostComputer",
            "tiff.DocumentName",
            "openslide.comment",
            "philips.DICOM_OPERATORS_NAME",
            "philips.PIM_DP_UFS_BARCODE",
            "leica.barcode",
            "mirax.GENERAL.SLIDE_NAME",
            "mirax.GENERAL.SLIDE_ID",
            "hamamatsu.Reference",
            "sakura.Creator",
            "sakura.DiagnosisCode",
            "sakura.Keywords",
            "ventana.SlideAnnotation",
            "philips.PIM_DP_SOURCE_FILE",
            "dicom.AdmissionID",
            "dicom.StudyID",
            "dicom.ClinicalTrialSubjectID",
            "ventana.Label1",
            "dicom.ContainerIdentifier",
            "ome.Name",
        ] {
            assert!(may_name_a_person(key), "{key}");
        }
        for key in [
            "aperio.MPP",
            "aperio.AppMag",
            "aperio.ScanScope ID",
            "dicom.Manufacturer",
            "dicom.ManufacturerModelName",
            "dicom.Modality",
            "dicom.StudyInstanceUID",
            "openslide.objective-power",
            "openslide.level-count",
        ] {
            assert!(!may_name_a_person(key), "{key}");
        }
    }
}
