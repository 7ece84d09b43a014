package datadogexporter

// Tags from which Datadog tells the service that a span calls, by dd-trace-go's
// rules.
var (
	tagPeerService  = name("peer.service")
	tagPeerSource   = name("_dd.peer.service.source")
	tagPeerRemapped = name("_dd.peer.service.remapped_from")

	tagAWSService      = name("aws_service")
	tagDBSystem        = name("db.system")
	tagMessagingSystem = name("messaging.system")
	tagRPCSystem       = name("rpc.system")

	peersAWS       = []*tagName{name("queuename"), name("topicname"), name("streamname"), name("tablename"), name("bucketname")}
	peersCassandra = []*tagName{name("db.cassandra.contact.points")}
	peersDB        = []*tagName{tagDBName, name("db.instance")}
	peersMessaging = []*tagName{name("messaging.kafka.bootstrap.servers")}
	peersRPC       = []*tagName{name("rpc.service")}
	peersNetwork   = []*tagName{name("network.destination.name"), name("peer.hostname"), name("out.host")}
)

// peerService says where a peer's name comes from, finds it for spans that call
// one where the operator wants that, and gives it the name that he has for it.
func (m *mapper) peerService(t *tags, kind spanKind) {
	peer := t.textAt(tagPeerService)
	source := tagPeerService
	if peer == nil {
		if !m.peerDefaults || kind != kindClient && kind != kindProducer {
			return
		}
		if source = peerSource(t); source == nil {
			return
		}
		t.text(tagPeerService, *t.textAt(source))
		if peer = t.textAt(tagPeerService); peer == nil {
			return // a number has the name
		}
	}
	from := *peer
	if to, mapped := m.peers[from]; mapped {
		*peer = to
		t.text(tagPeerRemapped, from)
	}
	t.text(tagPeerSource, source.text)
}

// peerSource is the tag that names the peer, the most precise of those that are
// there, or nil.
func peerSource(t *tags) *tagName {
	var sources []*tagName
	system := t.textAt(tagDBSystem)
	network := peersNetwork
	switch {
	case t.textAt(tagAWSService) != nil:
		sources = peersAWS
	case system != nil && *system == "cassandra":
		sources, network = peersCassandra, nil
	case system != nil:
		sources = peersDB
	case t.textAt(tagMessagingSystem) != nil:
		sources = peersMessaging
	case t.textAt(tagRPCSystem) != nil:
		sources = peersRPC
	}
	for _, from := range [...][]*tagName{sources, network} {
		for _, name := range from {
			if t.textAt(name) != nil {
				return name
			}
		}
	}
	return nil
}
