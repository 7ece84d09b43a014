package processors

// What a processor is called in the document, and in the books unless its
// config gives another name.
const (
	kindRayContext = "raycontext"
	kindAttributes = "attributes"
	kindRedact     = "redact"
	kindFilter     = "filter"
	kindSample     = "sample"
)
