// Package edgehttp makes HTTP endpoints idempotent: clients that retry get the first answer again, and the handler's
// effect happens once.
//
// [Middleware] follows the IETF draft "The Idempotency-Key HTTP Header Field" (draft-ietf-httpapi-idempotency-key-header)
// and what Stripe's API does (https://docs.stripe.com/api/idempotent_requests): 400 for a missing or malformed key, 409
// while the first request is in progress, 422 for the same key with another request, and else the stored answer with its
// status, headers and body. Errors are problem details (RFC 9457).
package edgehttp
