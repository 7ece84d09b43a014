package otelplugin

// WaitsForSDK is true while verdict.go stands in for pluginsdk.Final and
// Rejected, and decode.go lacks pluginsdk.Link.IsRemote.
const WaitsForSDK = true
