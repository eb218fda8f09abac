"""Reading questions and documents: row schemas, file formats, and the store of long documents."""
