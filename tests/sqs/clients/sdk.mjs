// A session of the AWS SDK for JavaScript, version 3: produce, consume, extend, delete, dead letters, FIFO, moves and errors.
import assert from 'node:assert/strict'
import * as sqs from '@aws-sdk/client-sqs'

const client = new sqs.SQSClient({})
const call = (Command, input) => client.send(new sqs[Command + 'Command'](input))
const attribute = async (QueueUrl, name) =>
  (await call('GetQueueAttributes', { QueueUrl, AttributeNames: [name] })).Attributes[name]

const { QueueUrl: dead } = await call('CreateQueue', { QueueName: 'js-dead' })
const { QueueUrl: url } = await call('CreateQueue', {
  QueueName: 'js',
  tags: { team: 'a' },
  Attributes: {
    VisibilityTimeout: '1',
    RedrivePolicy: JSON.stringify({ deadLetterTargetArn: await attribute(dead, 'QueueArn'), maxReceiveCount: 2 }),
  },
})
assert.equal((await call('GetQueueUrl', { QueueName: 'js' })).QueueUrl, url)
assert.ok((await call('ListQueues', { QueueNamePrefix: 'js' })).QueueUrls.includes(dead))
assert.deepEqual((await call('ListDeadLetterSourceQueues', { QueueUrl: dead })).queueUrls, [url])

// The SDK compares the MD5 of body and attributes by itself.
const body = 'größe <&> "日本" 😀\r\n\t'
const sent = await call('SendMessage', {
  QueueUrl: url,
  MessageBody: body,
  MessageAttributes: {
    text: { DataType: 'String', StringValue: 'é\r\n' },
    bytes: { DataType: 'Binary', BinaryValue: new Uint8Array([0, 255, 10]) },
    count: { DataType: 'Number.int', StringValue: '42' },
  },
})
const receive = async (QueueUrl, more) =>
  (await call('ReceiveMessage', {
    QueueUrl, WaitTimeSeconds: 5, MessageAttributeNames: ['All'], MessageSystemAttributeNames: ['All'], ...more,
  })).Messages ?? []
const [first] = await receive(url)
assert.equal(first.MessageId, sent.MessageId)
assert.equal(first.Body, body)
assert.equal(first.MessageAttributes.text.StringValue, 'é\r\n')
assert.deepEqual([...first.MessageAttributes.bytes.BinaryValue], [0, 255, 10])
assert.equal(first.Attributes.ApproximateReceiveCount, '1')

// An extended message is not redelivered, a returned message is, a deleted message is gone.
await call('ChangeMessageVisibility', { QueueUrl: url, ReceiptHandle: first.ReceiptHandle, VisibilityTimeout: 600 })
assert.deepEqual(await receive(url, { WaitTimeSeconds: 2 }), [])
await call('ChangeMessageVisibility', { QueueUrl: url, ReceiptHandle: first.ReceiptHandle, VisibilityTimeout: 0 })
const [again] = await receive(url)
assert.equal(again.Attributes.ApproximateReceiveCount, '2')
await call('DeleteMessage', { QueueUrl: url, ReceiptHandle: again.ReceiptHandle })

// Received twice and not deleted: the third receive finds it among the dead letters, from where it moves back.
const lost = await call('SendMessage', { QueueUrl: url, MessageBody: 'poison' })
await receive(url)
await receive(url)
assert.deepEqual(await receive(url, { WaitTimeSeconds: 2 }), [])
assert.equal(await attribute(dead, 'ApproximateNumberOfMessages'), '1')
await call('StartMessageMoveTask', { SourceArn: await attribute(dead, 'QueueArn') })
const { Results } = await call('ListMessageMoveTasks', { SourceArn: await attribute(dead, 'QueueArn') })
assert.equal(Results[0].Status, 'COMPLETED')
const [back] = await receive(url, { VisibilityTimeout: 60 })
assert.equal(back.Body, 'poison')
assert.notEqual(back.MessageId, lost.MessageId)

// Batches, with one bad entry; eleven are refused.
const entries = (n) => Array.from({ length: n }, (_, i) => ({ Id: `e${i}`, MessageBody: i === 3 ? '\u0001' : `b${i}` }))
const batch = await call('SendMessageBatch', { QueueUrl: url, Entries: entries(10) })
assert.equal(batch.Successful.length, 9)
assert.equal(batch.Failed[0].Code, 'InvalidMessageContents')
await assert.rejects(call('SendMessageBatch', { QueueUrl: url, Entries: entries(11) }), sqs.TooManyEntriesInBatchRequest)
const got = await receive(url, { MaxNumberOfMessages: 10, VisibilityTimeout: 60 })
assert.equal(got.length, 9)
const pick = got.map((m, i) => ({ Id: `d${i}`, ReceiptHandle: m.ReceiptHandle }))
assert.equal((await call('ChangeMessageVisibilityBatch', {
  QueueUrl: url, Entries: pick.map((e) => ({ ...e, VisibilityTimeout: 100 })),
})).Successful.length, 9)
assert.equal((await call('DeleteMessageBatch', { QueueUrl: url, Entries: pick })).Successful.length, 9)

// Errors have the service's names.
await assert.rejects(call('GetQueueUrl', { QueueName: 'none' }), sqs.QueueDoesNotExist)
await assert.rejects(call('DeleteMessage', { QueueUrl: url, ReceiptHandle: 'x' }), sqs.ReceiptHandleIsInvalid)
await assert.rejects(call('SendMessage', { QueueUrl: url, MessageBody: 'x'.repeat((1 << 20) + 1) }), { Code: 'InvalidParameterValue' })

// FIFO: in order, each group alone, duplicates swallowed.
const { QueueUrl: fifo } = await call('CreateQueue', { QueueName: 'js.fifo', Attributes: { FifoQueue: 'true' } })
for (const b of ['1', '2', '2', '3']) {
  await call('SendMessage', { QueueUrl: fifo, MessageBody: b, MessageGroupId: 'g', MessageDeduplicationId: b })
}
assert.deepEqual((await receive(fifo, { MaxNumberOfMessages: 10 })).map((m) => m.Body), ['1', '2', '3'])
await call('PurgeQueue', { QueueUrl: fifo })
await call('DeleteQueue', { QueueUrl: fifo })
console.log('session complete')
