// sqs-consumer on 40 messages: every fifth fails until it is a dead letter, one takes longer than its visibility timeout and is
// extended by heartbeats. What was handled goes to stdout.
import { CreateQueueCommand, GetQueueAttributesCommand, SendMessageBatchCommand, SQSClient } from '@aws-sdk/client-sqs'
import { Consumer } from 'sqs-consumer'

const sqs = new SQSClient({})
const { QueueUrl: dead } = await sqs.send(new CreateQueueCommand({ QueueName: 'work-dead' }))
const arn = (await sqs.send(new GetQueueAttributesCommand({ QueueUrl: dead, AttributeNames: ['QueueArn'] }))).Attributes.QueueArn
const { QueueUrl: queueUrl } = await sqs.send(new CreateQueueCommand({
  QueueName: 'work',
  Attributes: { VisibilityTimeout: '2', RedrivePolicy: JSON.stringify({ deadLetterTargetArn: arn, maxReceiveCount: 2 }) },
}))
for (let n = 0; n < 40; n += 10) {
  await sqs.send(new SendMessageBatchCommand({
    QueueUrl: queueUrl, Entries: Array.from({ length: 10 }, (_, i) => ({ Id: `m${i}`, MessageBody: `${n + i}` })),
  }))
}
const wait = (ms) => new Promise((done) => setTimeout(done, ms))
const handled = new Map()
const consumer = Consumer.create({
  queueUrl, sqs, batchSize: 10, waitTimeSeconds: 1, visibilityTimeout: 2, heartbeatInterval: 1, terminateVisibilityTimeout: true,
  handleMessage: async (message) => {
    const n = Number(message.Body)
    if (n % 5 === 4) throw new Error('refused')
    if (n === 10) await wait(5000)
    handled.set(n, (handled.get(n) ?? 0) + 1)
    return message
  },
})
consumer.on('error', (err) => console.error(err.message)) // with faults there are some
consumer.on('processing_error', () => {})
consumer.start()
const waiting = async () => {
  const { Attributes } = await sqs.send(new GetQueueAttributesCommand({ QueueUrl: queueUrl, AttributeNames: ['All'] }))
  return Number(Attributes.ApproximateNumberOfMessages) + Number(Attributes.ApproximateNumberOfMessagesNotVisible)
}
for (const end = Date.now() + 60000; (await waiting()) > 0 && Date.now() < end;) await wait(100)
consumer.stop()
const { Attributes } = await sqs.send(new GetQueueAttributesCommand({ QueueUrl: dead, AttributeNames: ['All'] }))
console.log(JSON.stringify({
  handled: handled.size, twice: [...handled.values()].filter((n) => n > 1).length, dead: Number(Attributes.ApproximateNumberOfMessages),
}))
