// Package edgehttp makes effects over HTTP happen once, on both sides of a connection.
//
// For servers [Middleware] makes endpoints idempotent: clients that retry get the first answer again, and the handler's
// effect happens once. It follows the IETF draft "The Idempotency-Key HTTP Header Field"
// (draft-ietf-httpapi-idempotency-key-header) and what Stripe's API does
// (https://docs.stripe.com/api/idempotent_requests): 400 for a missing or malformed key, 409 while the first request is
// in progress, 422 for the same key with another request, and else the stored answer with its status, headers and body,
// and the header Idempotent-Replayed: true. Errors are problem details (RFC 9457).
//
// For clients [Transport] puts an idempotency key on what handlers send, the same in every attempt, and sends nothing
// once the lease of the attempt has ended.
package edgehttp
