// A session of the AWS SDK for JavaScript, version 2, of before SQS had a JSON protocol: forms and XML.
const assert = require('node:assert/strict')
const AWS = require('aws-sdk')

const sqs = new AWS.SQS({ endpoint: process.env.AWS_ENDPOINT_URL_SQS, maxRetries: 0 })
const call = (name, input) => sqs[name](input ?? {}).promise()
const refused = (promise, code) => assert.rejects(promise, (err) => err.code === code)

async function main () {
  assert.deepEqual((await call('listQueues', { QueueNamePrefix: 'old' })).QueueUrls ?? [], [])
  const { QueueUrl: dead } = await call('createQueue', { QueueName: 'old-dead' })
  const { Attributes: { QueueArn: deadLetterTargetArn } } =
    await call('getQueueAttributes', { QueueUrl: dead, AttributeNames: ['QueueArn'] })
  const { QueueUrl } = await call('createQueue', {
    QueueName: 'old',
    Attributes: { VisibilityTimeout: '60', RedrivePolicy: JSON.stringify({ deadLetterTargetArn, maxReceiveCount: 1 }) },
    tags: { a: 'b' },
  })
  assert.deepEqual((await call('listQueueTags', { QueueUrl })).Tags, { a: 'b' })
  assert.deepEqual((await call('listDeadLetterSourceQueues', { QueueUrl: dead })).queueUrls, [QueueUrl])
  // The SDK compares the MD5 of bodies by itself.
  const MessageBody = 'größe <&> "日本" 😀\r\n\t'
  const { MessageId } = await call('sendMessage', {
    QueueUrl, MessageBody, MessageAttributes: {
      k: { DataType: 'String', StringValue: '<é>' }, b: { DataType: 'Binary', BinaryValue: Buffer.from([0, 255]) },
    },
  })
  const receive = async (more) => (await call('receiveMessage', {
    QueueUrl, WaitTimeSeconds: 5, MaxNumberOfMessages: 10, AttributeNames: ['All'], MessageAttributeNames: ['All'], ...more,
  })).Messages ?? []
  const [m] = await receive()
  assert.equal(m.MessageId, MessageId)
  assert.equal(m.Body, MessageBody)
  assert.equal(m.Attributes.ApproximateReceiveCount, '1')
  assert.equal(m.MessageAttributes.k.StringValue, '<é>')
  assert.deepEqual([...m.MessageAttributes.b.BinaryValue], [0, 255])
  await call('changeMessageVisibility', { QueueUrl, ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: 0 })
  assert.deepEqual(await receive({ WaitTimeSeconds: 1 }), []) // one receive was enough
  const [moved] = await receive({ QueueUrl: dead })
  assert.equal(moved.Body, MessageBody)
  await call('deleteMessage', { QueueUrl: dead, ReceiptHandle: moved.ReceiptHandle })
  const out = await call('sendMessageBatch', { QueueUrl, Entries: ['a', 'b', 'c'].map((b) => ({ Id: b, MessageBody: b === 'b' ? '\u0001' : b })) })
  assert.deepEqual(out.Successful.map((e) => e.Id), ['a', 'c'])
  assert.equal(out.Failed[0].Code, 'InvalidMessageContents')
  const got = await receive()
  const done = await call('deleteMessageBatch', { QueueUrl, Entries: got.map((x, i) => ({ Id: `${i}`, ReceiptHandle: x.ReceiptHandle })) })
  assert.equal(done.Successful.length, 2)
  await refused(call('getQueueUrl', { QueueName: 'none' }), 'AWS.SimpleQueueService.NonExistentQueue')
  await refused(call('deleteMessage', { QueueUrl, ReceiptHandle: 'x' }), 'ReceiptHandleIsInvalid')
  await refused(call('setQueueAttributes', { QueueUrl, Attributes: { VisibilityTimeout: '-1' } }), 'InvalidAttributeValue')
  await call('purgeQueue', { QueueUrl })
  await call('deleteQueue', { QueueUrl })
  console.log('session complete')
}
main().catch((err) => { console.error(err); process.exit(1) })
